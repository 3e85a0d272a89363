//! `heaptrack report`: the viewer with a trace inside, so that a report answers everything that the page answers.
//!
//! Receives: the viewer's page, a trace, the user's settings and the largest size. Returns: HTML, or the reason why the
//! report cannot have this form. Must hold: the engine in the browser has the names that this machine has. The page's
//! scripts and policy stay as they are, and only text that is not executed is added.
use crate::single_file::{Page, ReportError, load, megabytes, summary};
use crate::sources;
use crate::trace_store::opened;
use analysis::{CodeClass, StackTable};
use answers::{Options, Settings, table, too_large_for_a_browser};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use format::{Domain, FileWriter};
use heaptrack_trace::{
    Extent, OpenTrace, Opening, ReadAt, TraceFile, heap_profile_kind, open_source, open_without_names,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Where the viewer's page has room for the data of a report.
const PLACE: &str = "<!--carried-->";
/// The most bytes of the user's own sources in a report.
const SOURCES: usize = 2 << 20;
/// The zstd level of a trace that is written for a report.
const LEVEL: i32 = 9;

/// The viewer's page, which belongs to this version of heaptrack.
pub struct ViewerPage(String);

impl ViewerPage {
    /// Returns `None` for the page of another version. `tool` is the name and version of heaptrack.
    pub fn new(html: Vec<u8>, tool: &str) -> Option<Self> {
        let html = String::from_utf8(html).ok()?;
        let is_own = html.contains(&format!("<meta name=\"generator\" content=\"{tool}\">"));
        (is_own && html.matches(PLACE).count() == 1).then_some(ViewerPage(html))
    }
}

/// The result of [`whole`].
pub enum Whole {
    Made(Page),
    /// Why the report cannot have the trace: the rest of a sentence after "because".
    Impossible(String),
}

/// What the page reads, which is `Carried` in page/src/viewer/source.ts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Carried<'a> {
    name: &'a str,
    is_packed: bool,
    settings: Settings,
    sources: &'a Map<String, Value>,
    notes: &'a [String],
}

/// Finds the viewer that belongs to this heaptrack. The error says why there is none: the rest of a sentence after "because".
pub type FindViewer = fn() -> Result<ViewerPage, String>;

/// Makes a report with the trace and the engine, or one with prepared answers if that is not possible. The report then
/// says why.
pub fn report(path: &Path, options: &Options, most: u64, find_viewer: FindViewer) -> Result<Page, ReportError> {
    options.check()?;
    let reason = match find_viewer() {
        Ok(viewer) => match whole(path, options, most, &viewer)? {
            Whole::Made(page) => return Ok(page),
            Whole::Impossible(reason) => reason,
        },
        Err(reason) => reason,
    };
    let note =
        format!("This report has prepared answers instead of the trace, as with --summary-only, because {reason}.");
    summary(path, options, most, &[note])
}

/// Makes a report with the trace and the engine. `most` is its largest size. If it would be larger, the texts of sources
/// are left out.
pub fn whole(path: &Path, options: &Options, most: u64, viewer: &ViewerPage) -> Result<Whole, ReportError> {
    let trace = load(path, Domain::Malloc);
    let stage = trace.stage();
    let open = opened(&stage)?;
    let size = std::fs::metadata(path)?.len();
    if size > most {
        return Ok(Whole::Impossible(larger(size, most)));
    }
    let extent = Extent::of_bytes(Arc::new(std::fs::File::open(path)?), Domain::Malloc);
    if let Some(need) = extent.and_then(|extent| too_large_for_a_browser(&extent)) {
        let gigabytes = need as f64 / 1e9;
        return Ok(Whole::Impossible(format!(
            "the trace needs up to {gigabytes:.1} GB of memory, too much for a browser"
        )));
    }
    let table = table(open, options);
    let Some(bytes) = with_names(path, open, &table, options)? else {
        return Ok(Whole::Impossible("its names were looked up on this machine".to_owned()));
    };
    let (bytes, is_packed) = packed(bytes)?;
    let name = trace.name();
    let page = |sources: &Map<String, Value>, notes: Vec<String>| -> Result<Page, ReportError> {
        let carried = Carried { name: &name, is_packed, settings: options.settings(), sources, notes: &notes };
        Ok(Page { html: filled(viewer, &carried, &bytes)?, notes })
    };
    let made = page(&texts(&table), Vec::new())?;
    if made.html.len() as u64 <= most {
        return Ok(Whole::Made(made));
    }
    let note = format!("To keep this report below {} MB, the texts of source files are left out.", megabytes(most));
    let made = page(&Map::new(), vec![note])?;
    let size = made.html.len() as u64;
    Ok(if size <= most { Whole::Made(made) } else { Whole::Impossible(larger(size, most)) })
}

fn larger(size: u64, most: u64) -> String {
    format!(
        "a report with the trace would have {:.2} MB, more than {} MB (--max-size)",
        size as f64 / 1e6,
        megabytes(most)
    )
}

/// Returns the bytes of a trace from which a browser gets the names that this machine has. `None` if there are no such
/// bytes.
fn with_names(
    path: &Path,
    open: &OpenTrace,
    table: &StackTable,
    options: &Options,
) -> Result<Option<Vec<u8>>, ReportError> {
    if heap_profile_kind(path)?.is_some() {
        let bytes = Arc::new(std::fs::read(path)?);
        let alone = Arc::clone(&bytes) as Arc<dyn ReadAt>;
        let is_complete = names(&answers::table(&without_lookup(alone, path)?, options)) == names(table);
        return Ok(is_complete.then(|| Arc::unwrap_or_clone(bytes)));
    }
    if !open_without_names(path)?.is_raw() {
        return Ok(Some(std::fs::read(path)?));
    }
    debug_assert_eq!(open.domain(), Domain::Malloc);
    let mut source = open_source(path)?;
    let mut writer = FileWriter::new(Vec::new(), LEVEL)?;
    while let Some(block) = source.next_block()? {
        writer.write(block)?;
    }
    Ok(Some(writer.finish()?))
}

/// Opens a file as a browser does.
fn without_lookup(bytes: Arc<dyn ReadAt>, path: &Path) -> Result<OpenTrace, format::Error> {
    let mut opening = Opening::new(TraceFile::of_bytes(bytes, path)?, Domain::Malloc, answers::INDEX_BYTES)?;
    while opening.step()? {}
    Ok(opening.into_trace())
}

/// How many levels of stacks have the name of a function.
fn names(table: &StackTable) -> usize {
    table.levels.iter().filter(|level| table.text(level.function).is_some()).count()
}

/// Packs bytes with gzip, if that makes them smaller by more than a tenth. Returns whether they are packed.
fn packed(bytes: Vec<u8>) -> std::io::Result<(Vec<u8>, bool)> {
    let packed = gzip(&bytes)?;
    Ok(if packed.len() < bytes.len() / 10 * 9 { (packed, true) } else { (bytes, false) })
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Puts the data of a report into the viewer's page.
fn filled(ViewerPage(html): &ViewerPage, carried: &Carried<'_>, trace: &[u8]) -> Result<Vec<u8>, ReportError> {
    let (before, after) = html.split_once(PLACE).unwrap_or((html, ""));
    let about = gzip(&serde_json::to_vec(carried).map_err(std::io::Error::from)?)?;
    let mut out = Vec::with_capacity(html.len() + (trace.len() + about.len()) / 3 * 4 + 256);
    out.extend_from_slice(before.as_bytes());
    for (id, bytes) in [("carried-report", about.as_slice()), ("carried-trace", trace)] {
        writeln!(out, "<script type=\"text/plain\" id=\"{id}\">{}</script>", STANDARD.encode(bytes))?;
    }
    out.extend_from_slice(after.trim_start().as_bytes());
    Ok(out)
}

/// The texts of the user's own sources that can be read on this machine, up to `SOURCES` bytes in total.
pub(crate) fn texts(table: &StackTable) -> Map<String, Value> {
    let own = table.levels.iter().filter(|level| level.class == Some(CodeClass::Program));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const TOOL: &str = "heaptrack 7.0";

    fn viewer(generator: &str, place: &str) -> Option<ViewerPage> {
        let html = format!("<head><meta name=\"generator\" content=\"{generator}\"></head>\n{place}\n<p>engine</p>\n");
        ViewerPage::new(html.into_bytes(), TOOL)
    }

    #[test]
    fn only_the_viewer_of_this_version_is_used() {
        assert!(viewer(TOOL, PLACE).is_some());
        assert!(viewer("heaptrack 7.0.1", PLACE).is_none(), "another version");
        assert!(viewer(TOOL, "").is_none(), "no place");
        assert!(viewer(TOOL, "<!--carried--><!--carried-->").is_none(), "two places");
        assert!(ViewerPage::new(vec![0xff], TOOL).is_none());
    }

    #[test]
    fn the_page_carries_the_bytes_and_what_belongs_to_them() {
        let sources = Map::from_iter([("a.c".to_owned(), Value::String("</script>".to_owned()))]);
        let notes = ["left out".to_owned()];
        let settings = Settings::default();
        let carried = Carried { name: "x.htz", is_packed: false, settings, sources: &sources, notes: &notes };
        let html = filled(&viewer(TOOL, PLACE).unwrap(), &carried, b"\0trace\xff").unwrap();
        let html = String::from_utf8(html).unwrap();
        assert!(html.starts_with("<head>") && html.ends_with("</script>\n<p>engine</p>\n"), "{html}");
        let element = |id: &str| {
            let begin = format!("<script type=\"text/plain\" id=\"{id}\">");
            let text = html.split_once(&begin).unwrap().1.split_once("</script>").unwrap().0;
            STANDARD.decode(text).unwrap()
        };
        assert_eq!(element("carried-trace"), b"\0trace\xff");
        let mut json = String::new();
        flate2::read::GzDecoder::new(element("carried-report").as_slice()).read_to_string(&mut json).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["name"], "x.htz");
        assert_eq!(json["isPacked"], false);
        assert_eq!(json["sources"]["a.c"], "</script>");
        assert_eq!(json["notes"][0], "left out");
        assert_eq!(json["settings"], serde_json::json!({ "rules": null, "suppressions": [] }));
    }

    #[test]
    fn bytes_are_packed_if_that_helps() {
        let text = b"+ 0\n- 0\n".repeat(1000);
        assert!(packed(text).unwrap().1);
        assert_eq!(packed(b"x".to_vec()).unwrap(), (b"x".to_vec(), false));
    }
}
