//! `heaptrack report --summary-only`: the page and prepared answers in one file, without the trace and without an engine.
//!
//! Receives: a trace and the largest size. Returns: HTML. Must hold: every number comes from the engine. A range that
//! begins and ends at borders of slices has the same costs as in the server's answer, except those that slices do not
//! have (kept blocks and own peaks). The page says what was left out to keep the size.
use crate::assets;
use crate::slices::slice;
use crate::trace::Trace;
use crate::trace_store::{opened, status_of};
use crate::with_engine::texts;
use analysis::view::View;
use analysis::{KnownCosts, Query, StackTable};
use answers::{BadOptions, Options, Refusal, answer, table};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use format::Domain;
use heaptrack_trace::OpenTrace;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

const SLICES: usize = 256;

pub struct Page {
    pub html: Vec<u8>,
    /// Sentences about what was left out to keep the size.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Options(#[from] BadOptions),
    #[error("packing the report: {0}")]
    Io(#[from] std::io::Error),
    #[error("reading the trace again: {0}")]
    Read(#[from] format::Error),
}

impl From<Refusal> for ReportError {
    fn from(refusal: Refusal) -> Self {
        ReportError::Refused(refusal.sentence)
    }
}

/// `most` is the largest size in bytes. To keep it, the texts of sources are left out first. Then the session is
/// divided into fewer slices, so that there are fewer ranges to choose. Stacks and their costs are never left out, so a
/// report may be larger than `most`. It then says so.
///
/// `notes` are further sentences that the report shows.
pub fn summary(path: &Path, options: &Options, most: u64, notes: &[String]) -> Result<Page, ReportError> {
    options.check()?;
    let trace = load(path, Domain::Malloc);
    let stage = trace.stage();
    let open = opened(&stage)?;
    let table = table(open, options);
    let custom = open.has_custom().then(|| load(path, Domain::Custom));
    let told = |slices| notes.iter().cloned().chain([told(most, slices)]).collect();
    let draft = Draft {
        tool: &options.tool,
        trace: &trace,
        answers: answers(open, &table)?,
        texts: texts(&table),
        custom: custom.as_ref().map(|trace| Custom::new(trace, options)).transpose()?,
    };
    let fits = |page: &Page| page.html.len() as u64 <= most;
    let all = draft.slices(SLICES)?;
    let page = draft.page(&all, &draft.texts, notes.to_vec())?;
    if fits(&page) {
        return Ok(page);
    }
    let without = Map::new();
    let bare = draft.page(&all, &without, told(SLICES))?;
    if fits(&bare) {
        return Ok(bare);
    }
    let one = draft.slices(1)?;
    let least = draft.page(&one, &without, told(1))?;
    let mut count = affordable(most, least.html.len() as u64, bare.html.len() as u64);
    while count > 1 {
        let page = draft.page(&draft.slices(count)?, &without, told(count))?;
        if fits(&page) {
            return Ok(page);
        }
        count /= 2;
    }
    if fits(&least) {
        return Ok(least);
    }
    let mut notes: Vec<String> = told(1);
    notes.push(format!(
        "It is still larger than {} MB, because its stacks and their costs alone need more than that.",
        megabytes(most)
    ));
    draft.page(&one, &without, notes)
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Loads a trace at once.
pub(crate) fn load(path: &Path, domain: Domain) -> Arc<Trace> {
    let trace = Trace::new(path, domain, true);
    trace.load_now();
    trace
}

/// Returns how many slices are likely to fit, as a power of two. `least` is the size with one slice, `whole` the size
/// with all.
fn affordable(most: u64, least: u64, whole: u64) -> usize {
    let (room, each) = (most.saturating_sub(least), (whole.saturating_sub(least) / SLICES as u64).max(1));
    let count = (room / each).clamp(1, SLICES as u64 / 2);
    1 << count.ilog2()
}

/// Returns the sentence that says what was left out.
fn told(most: u64, slices: usize) -> String {
    let begin = format!("To keep this report below {} MB, the texts of source files are left out", megabytes(most));
    match slices {
        SLICES => format!("{begin}."),
        1 => format!("{begin} and so are ranges of time: there are the whole session and the peak."),
        _ => format!("{begin} and ranges of time snap to {slices} slices instead of {SLICES}."),
    }
}

/// The parts of a report that do not depend on the number of slices.
struct Draft<'a> {
    tool: &'a str,
    trace: &'a Trace,
    answers: Answers,
    texts: Map<String, Value>,
    custom: Option<Custom<'a>>,
}

/// The costs of slices of time, for both domains.
struct Slices {
    count: usize,
    malloc: Value,
    custom: Option<Value>,
}

/// The data as the page reads it, which is `ReportData` in page/src/work/report.ts.
#[derive(Serialize)]
struct Data<'a> {
    status: Value,
    answers: &'a Answers,
    slices: &'a Value,
    sources: &'a Map<String, Value>,
    custom: Option<CustomData<'a>>,
}

#[derive(Serialize)]
struct CustomData<'a> {
    trace: Value,
    answers: &'a Answers,
    slices: &'a Value,
}

impl Draft<'_> {
    fn slices(&self, count: usize) -> Result<Slices, ReportError> {
        let of = |trace: &Trace| slice(opened(&trace.stage())?, count);
        let custom = self.custom.as_ref().map(|custom| of(custom.trace)).transpose()?;
        Ok(Slices { count, malloc: of(self.trace)?, custom })
    }

    fn page(&self, slices: &Slices, texts: &Map<String, Value>, notes: Vec<String>) -> Result<Page, ReportError> {
        let custom = self.custom.as_ref().zip(slices.custom.as_ref());
        let data = Data {
            status: json!({
                "tool": self.tool,
                "traces": [status_without_mappings(self.trace)],
                "beside": [],
                "compare": null,
                "report": { "slices": slices.count, "notes": notes },
            }),
            answers: &self.answers,
            slices: &slices.malloc,
            sources: texts,
            custom: custom.map(|(custom, slices)| CustomData {
                trace: status_without_mappings(custom.trace),
                answers: &custom.answers,
                slices,
            }),
        };
        Ok(Page { html: page(&data)?, notes })
    }
}

/// The status of a trace whose mappings are not in the report, so that the page does not offer them.
fn status_without_mappings(trace: &Trace) -> Value {
    let mut status = status_of(trace);
    status["mapped"] = Value::Bool(false);
    status
}

/// The blocks that the program's own allocators reported.
struct Custom<'a> {
    trace: &'a Trace,
    answers: Answers,
}

impl<'a> Custom<'a> {
    fn new(trace: &'a Trace, options: &Options) -> Result<Self, ReportError> {
        let stage = trace.stage();
        let open = opened(&stage)?;
        Ok(Custom { trace, answers: answers(open, &table(open, options))? })
    }
}

/// The answers by their names in `WANTED`, as the engine wrote them.
type Answers = BTreeMap<&'static str, Box<RawValue>>;

/// The answers about the whole session: the name under which the page looks for one, the view, and the query.
const WANTED: &[(&str, &str, &str)] = &[
    ("stacks", "stacks", ""),
    ("profile", "profile", ""),
    ("timeline", "timeline", "points=256&top=20"),
    ("timeline allocations", "timeline", "points=256&top=20&cost=allocations"),
    ("timeline temporary", "timeline", "points=256&top=20&cost=temporary"),
    ("sizes", "sizes", ""),
    ("lifetimes", "lifetimes", ""),
    ("threads", "threads", ""),
    ("allocators", "allocators", ""),
    ("processes", "processes", ""),
    ("memory", "memory", ""),
    ("map", "map", ""),
    ("leaks", "leaks", ""),
    ("source", "source", ""),
    ("suppressions", "suppressions", ""),
];

fn answers(open: &OpenTrace, table: &StackTable) -> Result<Answers, ReportError> {
    let is_profile = open.engine().definitions().profile.is_some();
    // A heap profile of another tool has no events, and the page shows no view that needs them.
    let can_show = |view: &str| !is_profile || View::parse(view).is_some_and(KnownCosts::can_show);
    let wanted = WANTED.iter().filter(|(_, view, _)| can_show(view));
    wanted.map(|(name, view, query)| Ok((*name, ask(open, table, view, query)?))).collect()
}

fn ask(open: &OpenTrace, table: &StackTable, view: &str, query: &str) -> Result<Box<RawValue>, ReportError> {
    let refused = |sentence: String| ReportError::Refused(sentence);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = Query::new(pairs).map_err(|bad| refused(bad.to_string()))?;
    let view = View::parse(view).ok_or_else(|| refused(format!("no view {view}")))?;
    let bytes = answer(view, open, table, &query)?;
    serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))
}

/// Writes the page as one file. Scripts are allowed only by their hash. The worker and the data are plain text to the
/// browser.
fn page(data: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut encoder, data).map_err(std::io::Error::from)?;
    let packed = STANDARD.encode(encoder.finish()?);
    let text = |asset: assets::Asset| String::from_utf8_lossy(asset.bytes).into_owned();
    let (script, style, worker) = (text(assets::SCRIPT), text(assets::STYLE), text(assets::WORKER));
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; worker-src blob:; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(&style)
    );
    let mut html = Vec::with_capacity(packed.len() + script.len() + worker.len() + style.len() + 4096);
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>heaptrack</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{style}</style>\n</head>\n<body>\n<div id=\"page\"><p class=\"first\">heaptrack is loading…</p></div>\n\
         <noscript><p class=\"first\">This page needs JavaScript.</p></noscript>\n\
         <script type=\"text/plain\" id=\"report-data\">{packed}</script>\n\
         <script type=\"text/plain\" id=\"report-worker\">{worker}</script>\n\
         <script>{script}</script>\n</body>\n</html>\n"
    )?;
    Ok(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts are inside of the page, so their text must not end the script element.
    #[test]
    fn scripts_can_be_put_into_a_page() {
        for asset in [assets::SCRIPT, assets::WORKER] {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            assert!(!text.contains("</script") && !text.contains("<!--"), "{}", asset.name);
        }
        assert!(!std::str::from_utf8(assets::STYLE.bytes).unwrap().contains("</style"));
    }

    #[test]
    fn as_many_slices_as_fit() {
        assert_eq!(affordable(10_000, 5_000, 20_000), 64, "a third of 256 would fit");
        assert_eq!(affordable(19_000, 5_000, 20_000), 128, "never all: they were tried");
        assert_eq!(affordable(4_000, 5_000, 20_000), 1);
        assert_eq!(affordable(0, 0, 0), 1);
    }

    #[test]
    fn a_page_asks_nobody() {
        let html = String::from_utf8(page(&json!({})).unwrap()).unwrap();
        assert!(html.contains("script-src 'sha256-") && html.contains("default-src 'none'"));
        assert!(!html.contains("src=\"") && !html.contains("connect-src"));
    }
}
