//! The views of docs/views.md for the page.
use crate::{Options, Refusal};
use analysis::view::{AnswerError, View};
use analysis::{CodeClasses, PairNames, Query, Source, StackTable, Suppressions};
use heaptrack_trace::{AskError, OpenTrace};

/// The table of all stacks, with the classes and suppressions that the options ask for.
pub fn table(open: &OpenTrace, options: &Options) -> StackTable {
    let definitions = open.engine().definitions();
    let exe = &definitions.session.exe;
    // Never the fallback, because `Options::check` has parsed the same rules.
    let classes = options.classes(exe).unwrap_or_else(|_| CodeClasses::new(exe));
    // The order is the one of `print`, because a leak that several suppressions match is attributed to the first one.
    let mut suppressions = Suppressions::new();
    if options.builtin {
        suppressions.add_builtin();
    }
    for file in &options.suppressions {
        suppressions.add(&file.text, Source::File);
    }
    if options.embedded {
        suppressions.add(&definitions.suppressions, Source::Embedded);
    }
    open.table(&classes, suppressions)
}

/// Answers a question about one trace.
pub fn answer(view: View, open: &OpenTrace, table: &StackTable, query: &Query) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    match open.answer(view, query, table, None, &mut out) {
        Ok(()) => Ok(out),
        Err(AskError::Answer(AnswerError::Query(bad))) => Err(Refusal::new(400, bad.to_string())),
        Err(AskError::Answer(error)) => Err(Refusal::new(410, format!("The trace changed under us: {error}."))),
        Err(AskError::Read(error)) => Err(cannot_be_read(&error)),
    }
}

/// Refuses to compare traces if the blocks of one of them were sampled.
pub fn refuse_samples<'a>(traces: impl IntoIterator<Item = &'a OpenTrace>) -> Result<(), Refusal> {
    let refused = analysis::view::refuse_samples(traces.into_iter().map(OpenTrace::engine));
    refused.map_err(|bad| Refusal::new(400, bad.to_string()))
}

/// Answers with the names by which functions of the last of `runs` and of a base are the same.
pub fn pairs(base: &StackTable, runs: &[&StackTable]) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(&PairNames::new(base, runs)).map_err(|error| Refusal::new(500, error.to_string()))
}

/// The refusal for a file that could be read when it was opened, but cannot be read a second time.
pub fn cannot_be_read(error: &format::Error) -> Refusal {
    Refusal::new(410, format!("The trace cannot be read any more: {error}."))
}
