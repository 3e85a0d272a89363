//! All open files, and the answers about them.
use crate::file::File;
use analysis::{Query, StackTable};
use answers::{NamedText, Options, Question, Refusal, Settings, check_suppressions, question};
use format::Domain;
use heaptrack_trace::{OpenTrace, ReadAt};
use serde_json::json;
use std::sync::Arc;

/// Open files, each with a number. The numbers of closed files are not used again.
pub struct Viewer {
    files: Vec<Option<File>>,
    options: Options,
}

impl Default for Viewer {
    fn default() -> Self {
        Self::new()
    }
}

impl Viewer {
    /// Has no files. Known leaks are those of heaptrack's own list and those that a program names itself, as for
    /// `print`.
    pub fn new() -> Self {
        let tool = format!("heaptrack {}", env!("CARGO_PKG_VERSION"));
        let options = Options { rules: None, suppressions: Vec::new(), builtin: true, embedded: true, tool };
        Viewer { files: Vec::new(), options }
    }

    /// Begins to read a file and returns its number. `name` is its name in messages.
    pub fn open(&mut self, name: &str, bytes: Arc<dyn ReadAt>) -> usize {
        let mut file = File::new(name, &bytes);
        file.start(Domain::Malloc);
        self.files.push(Some(file));
        self.files.len() - 1
    }

    /// Forgets a file.
    pub fn close(&mut self, number: usize) {
        if let Some(file) = self.files.get_mut(number) {
            *file = None;
        }
    }

    /// Reads at most this many blocks of a file that is being read. Returns false if no file is.
    pub fn work(&mut self, blocks: usize) -> bool {
        let options = &self.options;
        self.files.iter_mut().flatten().any(|file| file.work(blocks, options))
    }

    /// Answers a question of the page, as the server does: `view` and `query` are those of an address.
    pub fn answer(&mut self, view: &str, query: &str) -> Result<Vec<u8>, Refusal> {
        match question(view, query)? {
            Question::Status { trace, domain } => {
                if let Some(Some(file)) = self.files.get_mut(trace) {
                    file.start(domain);
                }
                Ok(self.status(trace, domain))
            }
            Question::Pairs { trace, base, earlier, domain } => {
                let runs = [earlier, vec![trace]].concat();
                for number in runs.iter().chain([&base]) {
                    self.file(*number)?.start(domain);
                }
                let opened = |number: &usize| -> Result<(&OpenTrace, &StackTable), Refusal> {
                    let file = self.files.get(*number).and_then(Option::as_ref).ok_or_else(|| missing(*number))?;
                    file.of(domain).opened()
                };
                let (base, base_table) = opened(&base)?;
                let runs: Vec<(&OpenTrace, &StackTable)> = runs.iter().map(opened).collect::<Result<_, _>>()?;
                answers::refuse_samples(runs.iter().map(|(open, _)| *open).chain([base]))?;
                answers::pairs(base_table, &runs.iter().map(|(_, table)| *table).collect::<Vec<_>>())
            }
            Question::SourceText { file, .. } => Err(Refusal::new(
                404,
                format!(
                    "{file} is not in the trace, and this page reads no other files. On Linux, heaptrack analyze shows it."
                ),
            )),
            Question::View { trace, view, query, beside } => {
                for number in [Some(trace), beside].into_iter().flatten() {
                    self.file(number)?.start(query.domain);
                }
                let opened = |number: usize| {
                    let file = self.files.get(number).and_then(Option::as_ref).ok_or_else(|| missing(number))?;
                    file.of(query.domain).opened()
                };
                let (open, table) = opened(trace)?;
                match beside.map(opened).transpose()? {
                    Some((_, other)) => answers::answer(view, open, table, &table.beside(other, &query)),
                    None => answers::answer(view, open, table, &query),
                }
            }
        }
    }

    /// Replaces the user's rules and suppressions. `json` is a [`Settings`]. Returns JSON without content.
    pub fn configure(&mut self, json: &str) -> Result<Vec<u8>, Refusal> {
        let bad = |sentence: String| Refusal::new(400, sentence);
        let Settings { rules, suppressions } = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
        let options = Options { rules, suppressions, ..self.options.clone() };
        options.check().map_err(|error| bad(error.to_string()))?;
        self.options = options;
        self.files.iter_mut().flatten().for_each(|file| file.retable(&self.options));
        Ok(b"{}".to_vec())
    }

    /// Adds suppressions and returns JSON, as the server does.
    pub fn suppress(&mut self, text: &str) -> Result<Vec<u8>, Refusal> {
        let added = check_suppressions(text).map_err(|bad| Refusal::new(400, bad))?;
        self.options.suppressions.push(NamedText { name: "the chosen file".to_owned(), text: text.to_owned() });
        self.files.iter_mut().flatten().for_each(|file| file.retable(&self.options));
        Ok(json!({ "added": added }).to_string().into_bytes())
    }

    /// Returns the text that `print --view` prints. `words` are its options, and `base` is the number of the file to
    /// compare with.
    pub fn view(
        &mut self,
        number: usize,
        view: &str,
        words: &[(&str, &str)],
        base: Option<usize>,
    ) -> Result<String, String> {
        let query = Query::new(words.iter().copied()).map_err(|bad| bad.to_string())?;
        for number in [Some(number), base].into_iter().flatten() {
            self.file(number).map_err(|refusal| refusal.sentence)?.start(query.domain);
        }
        while self.work(usize::MAX) {}
        let opened = |number: usize| {
            let file = self.files.get(number).and_then(Option::as_ref).ok_or_else(|| missing(number).sentence)?;
            file.of(query.domain).opened().map_err(|refusal| refusal.sentence)
        };
        let (open, table) = opened(number)?;
        let base = base.map(opened).transpose()?;
        open.view(view, &query, table, base).map_err(|error| error.to_string())
    }

    fn file(&mut self, number: usize) -> Result<&mut File, Refusal> {
        self.files.get_mut(number).and_then(Option::as_mut).ok_or_else(|| missing(number))
    }

    fn status(&self, asked: usize, domain: Domain) -> Vec<u8> {
        let of = |number| if number == asked { domain } else { Domain::Malloc };
        let files = self.files.iter().enumerate();
        let traces: Vec<_> = files.map(|(number, file)| file.as_ref().map(|file| file.status(of(number)))).collect();
        json!({ "tool": self.options.tool, "traces": traces, "beside": [], "compare": null, "report": null })
            .to_string()
            .into_bytes()
    }
}

fn missing(number: usize) -> Refusal {
    Refusal::new(404, format!("There is no trace number {}.", number.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{Checkpoint, FileWriter, Summary, Totals};
    use serde_json::Value;

    /// The bytes of a trace whose numbers say that this many blocks were live.
    fn trace(live: u64) -> Vec<u8> {
        let totals =
            Totals { allocations: live, leaked_allocations: live, peak_allocations: live, ..Totals::default() };
        let mut out = FileWriter::new(std::io::Cursor::new(Vec::new()), 1).unwrap();
        out.write(&Checkpoint { totals, ..Checkpoint::default() }.to_block()).unwrap();
        out.write(&Summary { totals, ..Summary::default() }.to_block()).unwrap();
        out.finish().unwrap().into_inner()
    }

    fn status(viewer: &mut Viewer) -> Value {
        let text = viewer.answer("status", "trace=0").unwrap_or_else(|refusal| panic!("{}", refusal.sentence));
        serde_json::from_slice::<Value>(&text).unwrap()["traces"][0].clone()
    }

    #[test]
    fn a_trace_that_does_not_fit_into_a_browser_is_refused_before_it_is_read() {
        for (live, state) in [(1_000, "loading"), (200_000_000, "failed")] {
            let mut viewer = Viewer::new();
            viewer.open("big.htz", Arc::new(trace(live)));
            let status = status(&mut viewer);
            assert_eq!(status["state"], state, "{status}");
            let sentence = "big.htz is too large for a browser: it needs up to 4.9 GB of memory. On Linux: heaptrack analyze big.htz";
            assert_eq!(status["error"].as_str(), (state == "failed").then_some(sentence));
            assert_eq!(viewer.work(1), state == "loading");
        }
    }

    /// The page shows how much of a file was read.
    #[test]
    fn progress_grows_until_a_file_is_open() {
        let mut viewer = Viewer::new();
        viewer.open("small.htz", Arc::new(trace(10)));
        let mut shares = vec![status(&mut viewer)["progress"].as_f64().unwrap()];
        while viewer.work(1) {
            shares.extend(status(&mut viewer)["progress"].as_f64());
        }
        assert!(
            shares.len() > 1 && shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)),
            "{shares:?}"
        );
        assert_eq!(status(&mut viewer)["state"], "ready");
    }
}
