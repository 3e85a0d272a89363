//! Processes as a query names them: by pid, by name, or by index.
use crate::definitions::Definitions;
use format::Process;
use std::collections::BTreeSet;
use std::fmt;

/// The reason why a text is no process.
pub(crate) const NOT_A_PROCESS: &str = "must be a pid, a name, or # and an index of --view processes";

/// How many processes a message lists.
const LISTED: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessName {
    /// All programs that ran in the process with this pid.
    Pid(u32),
    /// The base name of the program's file or of the command's first word.
    Name(String),
    /// The index in the trace.
    Index(u32),
}

impl ProcessName {
    pub fn parse(text: &str) -> Option<ProcessName> {
        if let Some(index) = text.strip_prefix('#') {
            return index.parse().ok().map(ProcessName::Index);
        }
        match text.parse() {
            Ok(pid) => Some(ProcessName::Pid(pid)),
            Err(_) => (!text.is_empty()).then(|| ProcessName::Name(text.to_owned())),
        }
    }

    pub fn is(&self, process: &Process) -> bool {
        match self {
            ProcessName::Pid(pid) => process.pid == *pid,
            ProcessName::Name(name) => process.is_called(name),
            ProcessName::Index(index) => process.index == *index,
        }
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessName::Pid(pid) => pid.fmt(f),
            ProcessName::Name(name) => f.write_str(name),
            ProcessName::Index(index) => write!(f, "#{index}"),
        }
    }
}

impl Definitions {
    /// The processes of a tree that have one of these names.
    pub(crate) fn chosen_processes<'a>(&'a self, names: &'a [ProcessName]) -> impl Iterator<Item = &'a Process> {
        self.processes.values().filter(|process| names.iter().any(|name| name.is(process)))
    }

    /// Whether the trace has a process of this name.
    pub(crate) fn has_process(&self, name: &ProcessName) -> bool {
        match self.processes.is_empty() {
            true => self.is_of(std::slice::from_ref(name)),
            false => self.processes.values().any(|process| name.is(process)),
        }
    }

    /// Whether the only process of a trace without a tree has one of these names.
    pub(crate) fn is_of(&self, names: &[ProcessName]) -> bool {
        let only = self.only_process();
        names.iter().any(|name| name.is(&only))
    }

    fn only_process(&self) -> Process {
        let session = &self.session;
        Process { pid: session.pid, command: session.command.clone(), exe: session.exe.clone(), ..Process::default() }
    }

    /// The processes of the trace, for a sentence.
    pub(crate) fn processes_in_words(&self) -> String {
        if self.processes.is_empty() {
            let only = self.only_process();
            return format!("only process {} ({})", only.pid, only.name());
        }
        let names: BTreeSet<&str> =
            self.processes.values().map(Process::name).filter(|name| !name.is_empty()).collect();
        let mut list: Vec<&str> = names.iter().take(LISTED).copied().collect();
        let more = format!("{} more", names.len().saturating_sub(LISTED));
        if names.len() > LISTED {
            list.push(&more);
        }
        let count = self.processes.len();
        format!("{count} {}: {}", if count == 1 { "process" } else { "processes" }, list.join(", "))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_pid_and_everything_else_a_name() {
        assert_eq!(ProcessName::parse("12"), Some(ProcessName::Pid(12)));
        assert_eq!(ProcessName::parse("#12"), Some(ProcessName::Index(12)));
        assert_eq!(ProcessName::parse("cc1plus"), Some(ProcessName::Name("cc1plus".into())));
        assert_eq!((ProcessName::parse(""), ProcessName::parse("#"), ProcessName::parse("#-1")), (None, None, None));
    }
}
