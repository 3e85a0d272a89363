//! Profiles in pprof's format, read by Go.
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The columns of the samples of `go tool pprof -raw`, added up, by their names.
pub fn sums_by_go(file: &Path) -> BTreeMap<String, i64> {
    let mut command = Command::new("go");
    let done = command.args(["tool", "pprof", "-raw"]).arg(file).output().expect("go runs");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("text");
    let mut lines = text.lines().skip_while(|line| *line != "Samples:").skip(1);
    let header = lines.next().expect("a header");
    let names: Vec<&str> = header.split_whitespace().filter_map(|name| name.split('/').next()).collect();
    let mut sums: BTreeMap<String, i64> = names.iter().map(|name| ((*name).to_owned(), 0)).collect();
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Vec<i64> = values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if values.len() == names.len() {
            names.iter().zip(values).for_each(|(name, value)| *sums.entry((*name).to_owned()).or_default() += value);
        }
    }
    sums
}
