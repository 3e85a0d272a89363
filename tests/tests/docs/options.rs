//! Every option in the page about production, in the manifests for Kubernetes and in the unit for systemd exists. Users first try
//! these commands when they need them.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use std::collections::BTreeSet;
use std::process::Command;

/// Options of kubectl, curl and others.
const OF_OTHERS: [&str; 5] = ["custom", "image", "profile", "target", "unix-socket"];

/// The names after `--`.
fn options(text: &str) -> BTreeSet<String> {
    let parts = text.split("--").skip(1);
    let names = parts.map(|part| part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>());
    names.map(|name| name.trim_end_matches('-').to_owned()).filter(|name| name.len() > 1).collect()
}

fn known() -> BTreeSet<String> {
    let commands: [&[&str]; 4] = [&["--help"], &["attach", "--help"], &["snapshot", "--help"], &["export", "--help"]];
    let helps = commands.map(|words| {
        let help = Command::new(heaptrack()).args(words).output().unwrap();
        assert!(help.status.success());
        String::from_utf8(help.stdout).unwrap()
    });
    helps.iter().flat_map(|help| options(help)).collect()
}

#[test]
fn every_option_of_a_command_for_production_exists() {
    let known = known();
    let mut named = 0;
    for file in [
        "docs/production.md",
        "packaging/kubernetes/daemonset.yaml",
        "packaging/kubernetes/ephemeral.yaml",
        "packaging/kubernetes/sidecar.yaml",
        "packaging/systemd/shop.service",
    ] {
        for option in options(&std::fs::read_to_string(workspace().join(file)).unwrap()) {
            named += 1;
            assert!(known.contains(&option) || OF_OTHERS.contains(&option.as_str()), "{file}: --{option}");
        }
    }
    assert!(named > 40, "only {named} options were found");
}
