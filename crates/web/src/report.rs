//! `heaptrack report`: the page and all its data in one file that needs no server.
//!
//! Given: a trace and the most bytes. Gives back: HTML. What must hold: every number is the engine's; a range that begins and ends at borders of
//! slices has the same costs as a server would give; what was left out to keep to the size is said in the page.
use crate::assets;
use crate::server::Refusal;
use crate::shelf::{Options, answer, opened, status_of, table};
use crate::sources;
use crate::trace::{Open, Trace};
use analysis::view::View;
use analysis::{Class, Costs, Query, Table};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;

const SLICES: usize = 256;
/// Texts of the user's own sources are carried along up to so many bytes.
const SOURCES: usize = 2 << 20;
const MB: u64 = 1_000_000;

pub struct Page {
    pub html: Vec<u8>,
    /// What was left out.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{0}")]
    Refused(String),
    #[error("packing the report: {0}")]
    Io(#[from] std::io::Error),
}

impl From<Refusal> for ReportError {
    fn from(refusal: Refusal) -> Self {
        ReportError::Refused(refusal.sentence)
    }
}

/// `most`: megabytes.
pub fn report(path: &Path, options: Options, most: u64) -> Result<Page, ReportError> {
    let trace = Trace::new(path, true, options.opener);
    trace.load_now();
    let stage = trace.stage();
    let open = opened(&stage)?;
    let table = table(open, &options);
    let mut answers = Map::new();
    for (view, query) in WANTED {
        answers.insert((*view).to_owned(), ask(open, &table, view, query)?);
    }
    let mut texts = texts(&table);
    let mut slices = SLICES;
    let mut notes = Vec::new();
    loop {
        let data = json!({
            "status": {
                "tool": options.tool,
                "traces": [status_of(&trace)],
                "beside": [],
                "compare": null,
                "report": { "slices": slices, "notes": notes },
            },
            "answers": answers,
            "slices": slice(open, slices)?,
            "sources": texts,
        });
        let html = page(&data)?;
        if html.len() as u64 <= most * MB || slices == 1 && texts.is_empty() {
            return Ok(Page { html, notes });
        }
        if texts.is_empty() {
            slices /= 2;
        }
        texts.clear();
        notes = vec![format!("To keep this report below {most} MB, {}", cut(slices))];
    }
}

fn cut(slices: usize) -> String {
    match slices {
        SLICES => "the texts of source files are left out.".into(),
        _ => format!(
            "the texts of source files are left out and ranges of time snap to {slices} slices instead of {SLICES}."
        ),
    }
}

/// Answers about the whole session.
const WANTED: &[(&str, &str)] = &[
    ("stacks", ""),
    ("profile", ""),
    ("timeline", "points=256&top=20"),
    ("sizes", ""),
    ("lifetimes", ""),
    ("threads", ""),
    ("leaks", ""),
    ("source", ""),
    ("suppressions", ""),
];

fn ask(open: &Open, table: &Table, view: &str, query: &str) -> Result<Value, ReportError> {
    let refused = |sentence: String| ReportError::Refused(sentence);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = Query::new(pairs).map_err(|bad| refused(bad.to_string()))?;
    let view = View::parse(view).ok_or_else(|| refused(format!("no view {view}")))?;
    let bytes = answer(view, open, table, &query)?;
    serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))
}

/// Columns of the slices: only stacks on which something happened have a row.
fn slice(open: &Open, count: usize) -> Result<Value, ReportError> {
    let runtime = open.engine.runtime_ns();
    let border = |at: usize| (runtime as u128 * at as u128 / count as u128) as u64;
    let mut blocks = open.blocks()?;
    let mut columns: HashMap<&str, Vec<u64>> = HashMap::new();
    let (mut starts, mut highest, mut highest_ns) = (vec![0], Vec::new(), Vec::new());
    let mut before: HashMap<u32, Costs> = HashMap::new();
    let mut rows = 0;
    for number in 0..count {
        let (from, to) = (border(number).to_string(), border(number + 1).to_string());
        let to = if number + 1 == count { "end" } else { &to };
        let query =
            Query::new([("from", from.as_str()), ("to", to)]).map_err(|bad| ReportError::Refused(bad.to_string()))?;
        let profile =
            open.engine.profile(&mut *blocks, &query).map_err(|gone| ReportError::Refused(gone.to_string()))?;
        let mut now = HashMap::new();
        for (site, costs) in &profile.stacks {
            now.insert(*site, *costs);
            let was = before.get(site).map_or((0, 0), |costs| (costs.live_bytes, costs.live_allocations));
            let is_same =
                costs.allocations + costs.deallocations == 0 && was == (costs.live_bytes, costs.live_allocations);
            if is_same {
                continue;
            }
            push(&mut columns, *site, costs);
            rows += 1;
        }
        // What `exec` took away is in no profile, and gone.
        for (site, _) in before.iter().filter(|(site, costs)| costs.live_allocations > 0 && !now.contains_key(site)) {
            push(&mut columns, *site, &Costs::default());
            rows += 1;
        }
        starts.push(rows);
        highest.push(profile.totals.peak_bytes);
        highest_ns.push(profile.peak_time_ns);
        before = now;
    }
    let mut map = Map::new();
    map.insert("time_ns".into(), json!((0..=count).map(border).collect::<Vec<_>>()));
    map.insert("highest".into(), json!(highest));
    map.insert("highest_ns".into(), json!(highest_ns));
    map.insert("start".into(), json!(starts));
    for name in COLUMNS.iter().map(|(name, _)| *name).chain(["stack"]) {
        map.insert(name.into(), json!(columns.remove(name).unwrap_or_default()));
    }
    Ok(Value::Object(map))
}

type Column = (&'static str, fn(&Costs) -> u64);
const COLUMNS: [Column; 11] = [
    ("allocations", |costs| costs.allocations),
    ("allocated_bytes", |costs| costs.allocated_bytes),
    ("deallocations", |costs| costs.deallocations),
    ("freed_bytes", |costs| costs.freed_bytes),
    ("temporary", |costs| costs.temporary),
    ("temporary_bytes", |costs| costs.temporary_bytes),
    ("lifetime_ns", |costs| costs.lifetime_ns),
    ("live_bytes", |costs| costs.live_bytes),
    ("live_allocations", |costs| costs.live_allocations),
    ("peak_bytes", |costs| costs.peak_bytes),
    ("peak_allocations", |costs| costs.peak_allocations),
];

fn push(columns: &mut HashMap<&str, Vec<u64>>, site: u32, costs: &Costs) {
    columns.entry("stack").or_default().push(site.into());
    for (name, of) in COLUMNS {
        columns.entry(name).or_default().push(of(costs));
    }
}

/// The user's own sources, as far as they can be read here.
fn texts(table: &Table) -> Map<String, Value> {
    let own = table.levels.iter().filter(|level| level.class == Some(Class::Program));
    let files: BTreeSet<&str> = own.filter_map(|level| table.text(level.file)).collect();
    let mut left = SOURCES;
    let mut texts = Map::new();
    for file in files {
        let Ok(text) = sources::read(Path::new(file)) else { continue };
        if let Some(rest) = left.checked_sub(text.len()) {
            left = rest;
            texts.insert(file.to_owned(), Value::String(text));
        }
    }
    texts
}

/// One file. Scripts run by their hash only; the worker and the data are text to the browser.
fn page(data: &Value) -> Result<Vec<u8>, ReportError> {
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

    /// Scripts stand inside of a page, so nothing in them may end it.
    #[test]
    fn scripts_can_be_put_into_a_page() {
        for asset in [assets::SCRIPT, assets::WORKER] {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            assert!(!text.contains("</script") && !text.contains("<!--"), "{}", asset.name);
        }
        assert!(!std::str::from_utf8(assets::STYLE.bytes).unwrap().contains("</style"));
    }

    #[test]
    fn a_page_asks_nobody() {
        let html = String::from_utf8(page(&json!({})).unwrap()).unwrap();
        assert!(html.contains("script-src 'sha256-") && html.contains("default-src 'none'"));
        assert!(!html.contains("src=\"") && !html.contains("connect-src"));
    }
}
