//! `heaptrack completions`: scripts that complete commands and options in a shell.
//!
//! Receives: the shell, and the command that is completed. Returns: the script, on stdout. Must hold: the script knows every
//! subcommand and every option of it, because it is made from the commands that parse them.
use crate::analyze::Analyze;
use crate::cargo_heaptrack::CargoHeaptrack;
use crate::print::Print;
use crate::record::Record;
use crate::{heaptrace, man, print_out};
use clap::{CommandFactory, Parser, ValueEnum};
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack completions bash > ~/.local/share/bash-completion/completions/heaptrack
  heaptrack completions zsh > ~/.zfunc/_heaptrack
  heaptrack completions fish heaptrace > ~/.config/fish/completions/heaptrace.fish

Exit code: 0; 2 wrong usage.";

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, Parser)]
#[command(name = "heaptrack completions", bin_name = "heaptrack completions", version, after_help = HELP)]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
    /// The command that the script completes.
    #[arg(default_value = "heaptrack")]
    command: Completed,
}

/// A command that a shell completes. The last four are links to the same binary.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Completed {
    Heaptrack,
    #[value(name = "heaptrack_print")]
    HeaptrackPrint,
    #[value(name = "heaptrack_gui")]
    HeaptrackGui,
    Heaptrace,
    CargoHeaptrack,
}

pub fn run(options: &Completions) -> anyhow::Result<ExitCode> {
    print_out(&script(options.shell, options.command))
}

fn script(shell: clap_complete::Shell, completed: Completed) -> Vec<u8> {
    let (mut command, name) = match completed {
        Completed::Heaptrack => (with_subcommands(), "heaptrack"),
        Completed::HeaptrackPrint => (Print::command(), "heaptrack_print"),
        Completed::HeaptrackGui => (Analyze::command(), "heaptrack_gui"),
        Completed::Heaptrace => (heaptrace::command(), "heaptrace"),
        Completed::CargoHeaptrack => (CargoHeaptrack::command(), "cargo-heaptrack"),
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    match shell {
        // clap_complete does not quote `heaptrace -?`, which fish would take for a pattern of file names.
        clap_complete::Shell::Fish => String::from_utf8_lossy(&text).replace(" -s ? ", " -s '?' ").into_bytes(),
        _ => text,
    }
}

/// `heaptrack` itself records. Its subcommands are parsed one by one (`args.rs`), so clap knows them together only here. Their
/// names are leaked, because clap wants static ones and the process ends after this.
fn with_subcommands() -> clap::Command {
    let others = man::commands().into_iter().filter_map(|command| {
        let name: &'static str = command.get_name().rsplit(' ').next()?.to_owned().leak();
        (!matches!(name, "heaptrack" | "cargo-heaptrack"))
            .then(|| command.name(name).bin_name(format!("heaptrack {name}")))
    });
    Record::command().disable_help_subcommand(true).subcommands(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    fn text(shell: Shell, completed: Completed) -> String {
        String::from_utf8(script(shell, completed)).unwrap()
    }

    /// The words that bash offers after `heaptrack COMMAND`.
    fn words_of_bash(text: &str, command: &str) -> Vec<String> {
        let label = format!("        heaptrack__subcmd__{command})\n");
        let from = text.split(&label).nth(1).unwrap_or_else(|| panic!("no {command} in\n{text}"));
        let line = from.lines().find_map(|line| line.trim().strip_prefix("opts=\"")).unwrap();
        line.trim_end_matches('"').split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_option_of_every_subcommand_is_completed() {
        let bash = text(Shell::Bash, Completed::Heaptrack);
        for command in man::commands().into_iter().skip(1).filter(|command| command.get_name() != "cargo-heaptrack") {
            let name = command.get_name().rsplit(' ').next().unwrap().to_owned();
            let words = words_of_bash(&bash, &name);
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()) {
                assert!(words.contains(&format!("--{option}")), "{name} --{option}: {words:?}");
            }
        }
    }

    #[test]
    fn fish_reads_no_pattern() {
        let fish = text(Shell::Fish, Completed::Heaptrack);
        assert!(fish.contains(" -s '?' ") && !fish.contains(" ? "), "{fish}");
    }

    #[test]
    fn each_shell_has_a_script_for_each_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            for (completed, name, option) in [
                (Completed::Heaptrack, "heaptrack", "max-size"),
                (Completed::HeaptrackPrint, "heaptrack_print", "flamegraph-cost-type"),
                (Completed::HeaptrackGui, "heaptrack_gui", "compare"),
                (Completed::Heaptrace, "heaptrace", "depth"),
            ] {
                let script = text(shell, completed);
                assert!(script.contains(name), "{shell} {name}");
                assert!(script.contains(option), "{shell} {name}: {option}");
            }
        }
    }
}
