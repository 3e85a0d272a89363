//! An open trace with its table of stacks, and what the user chose when it was opened.
use crate::worker::Info;
use analysis::{CodeClasses, Source, StackTable, Suppressions};
use format::Domain;
use heaptrack_trace::{OpenOptions, OpenTrace};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The memory of the index. A profile of a trace must fit beside other programs on a small server, so it is smaller than
/// that of the page, and answers about ranges of a very large trace take longer.
const INDEX_BYTES: usize = 24 << 20;

/// The trace, and what decides how it is read.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub path: PathBuf,
    pub domain: Domain,
    /// The text of a rules file, which tells which code is the user's. It must be valid.
    pub rules: Option<String>,
    /// The texts of the user's files of suppressions.
    pub suppressions: Vec<String>,
    pub has_builtin_suppressions: bool,
    pub has_embedded_suppressions: bool,
}

impl Settings {
    fn classes(&self, exe: &str) -> CodeClasses {
        let mut classes = CodeClasses::new(exe);
        if let Some(rules) = &self.rules {
            // The caller has refused invalid rules.
            let _ = classes.add_rules(rules);
        }
        classes
    }

    fn known_leaks(&self, embedded: &str) -> Suppressions {
        let mut known = Suppressions::new();
        if self.has_builtin_suppressions {
            known.add_builtin();
        }
        for text in &self.suppressions {
            known.add(text, Source::File);
        }
        if self.has_embedded_suppressions {
            known.add(embedded, Source::Embedded);
        }
        known
    }
}

pub(crate) struct Opened {
    pub(crate) trace: OpenTrace,
    pub(crate) table: Arc<StackTable>,
    /// The share of the trace that is in the user's own code.
    pub(crate) mine: f64,
}

impl Opened {
    pub(crate) fn open(path: &Path, settings: &Settings, progress: impl FnMut(u64, u64)) -> Result<Opened, String> {
        let options = OpenOptions::new().domain(settings.domain).indexed(true).index_bytes(INDEX_BYTES).followed(true);
        let trace = options.open(path, progress).map_err(|error| {
            let reason = error.to_string();
            format!("{} cannot be read: {}", path.display(), reason.split(" (os error").next().unwrap_or(&reason))
        })?;
        let mut opened = Opened { trace, table: Arc::default(), mine: 1.0 };
        opened.refresh(settings);
        Ok(opened)
    }

    /// Makes the table again, after the trace has grown.
    pub(crate) fn refresh(&mut self, settings: &Settings) {
        let definitions = self.trace.engine().definitions();
        let classes = settings.classes(&definitions.session.exe);
        let known = settings.known_leaks(&definitions.suppressions);
        self.table = Arc::new(self.trace.table(&classes, known));
        self.count_mine();
    }

    pub(crate) fn info(&self) -> Info {
        let definitions = self.trace.engine().definitions();
        let mut notes = self.trace.not_seen();
        if self.trace.has_custom() && self.trace.domain() == Domain::Malloc {
            notes.push("The program also reported blocks of its own allocators: `heaptrack tui --domain custom FILE` shows them.".into());
        }
        Info {
            command: definitions.session.command.join(" "),
            pid: definitions.session.pid,
            is_attached: definitions.session.attached,
            is_live: self.trace.is_live(),
            is_complete: self.trace.is_complete(),
            totals: self.trace.engine().totals(),
            errors: self.trace.engine().whole_intervals().map(|intervals| intervals.totals),
            notes,
        }
    }
}
