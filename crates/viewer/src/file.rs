//! One file, which has a trace for each domain. The trace of custom allocators is read when it is first asked for.
//!
//! ```text
//! Waiting -> Loading -> Open
//!        \          \-> Failed (a sentence)
//! ```
use crate::progress::Progress;
use analysis::StackTable;
use answers::{INDEX_BYTES, Options, Refusal, State, TraceStatus, too_large_for_a_browser};
use format::{Domain, Error};
use heaptrack_trace::{Extent, OpenTrace, Opening, ReadAt, TraceFile};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

pub(crate) struct File {
    name: String,
    malloc: Trace,
    custom: Trace,
    mapped: Trace,
}

pub(crate) struct Trace {
    bytes: Arc<Progress>,
    domain: Domain,
    stage: Stage,
    version: u64,
}

enum Stage {
    Waiting,
    Loading(Box<Opening>),
    Open { trace: Box<OpenTrace>, table: StackTable },
    Failed(String),
}

impl File {
    pub(crate) fn new(name: &str, bytes: &Arc<dyn ReadAt>) -> Self {
        let trace = |domain| Trace {
            bytes: Arc::new(Progress::new(Arc::clone(bytes))),
            domain,
            stage: Stage::Waiting,
            version: 0,
        };
        let (malloc, custom, mapped) = (trace(Domain::Malloc), trace(Domain::Custom), trace(Domain::Mapped));
        File { name: name.to_owned(), malloc, custom, mapped }
    }

    pub(crate) const fn of(&self, domain: Domain) -> &Trace {
        match domain {
            Domain::Malloc => &self.malloc,
            Domain::Custom => &self.custom,
            Domain::Mapped => &self.mapped,
        }
    }

    /// Begins to read a trace. Does nothing if that was done before.
    pub(crate) fn start(&mut self, domain: Domain) {
        let (name, trace) = self.named(domain);
        trace.start(name);
    }

    /// Reads on if a trace of this file is being read. Returns false if none is.
    pub(crate) fn work(&mut self, blocks: usize, options: &Options) -> bool {
        Domain::ALL.into_iter().any(|domain| {
            let (name, trace) = self.named(domain);
            trace.work(name, blocks, options)
        })
    }

    /// Makes the tables of stacks again, because suppressions were added.
    pub(crate) fn retable(&mut self, options: &Options) {
        for trace in [&mut self.malloc, &mut self.custom, &mut self.mapped] {
            if let Stage::Open { trace, table } = &mut trace.stage {
                *table = answers::table(trace, options);
            }
            trace.version += 1;
        }
    }

    pub(crate) fn status(&self, domain: Domain) -> Value {
        let trace = self.of(domain);
        let state = match &trace.stage {
            Stage::Waiting => State::Waiting,
            Stage::Loading(_) => State::Loading(trace.bytes.share(), None),
            Stage::Open { trace, .. } => State::Open(trace),
            Stage::Failed(sentence) => State::Failed(sentence),
        };
        answers::status_of(&TraceStatus { name: &self.name, path: &self.name, state, version: trace.version })
    }

    const fn named(&mut self, domain: Domain) -> (&String, &mut Trace) {
        match domain {
            Domain::Malloc => (&self.name, &mut self.malloc),
            Domain::Custom => (&self.name, &mut self.custom),
            Domain::Mapped => (&self.name, &mut self.mapped),
        }
    }
}

impl Trace {
    pub(crate) fn opened(&self) -> Result<(&OpenTrace, &StackTable), Refusal> {
        match &self.stage {
            Stage::Open { trace, table } => Ok((trace, table)),
            Stage::Failed(sentence) => Err(Refusal::new(422, sentence.clone())),
            Stage::Waiting | Stage::Loading(_) => Err(Refusal::new(503, "This trace is still being read.")),
        }
    }

    fn start(&mut self, name: &str) {
        if matches!(self.stage, Stage::Waiting) {
            let opening = self.opening(name);
            self.set(opening.map_or_else(Stage::Failed, |opening| Stage::Loading(Box::new(opening))));
        }
    }

    fn opening(&self, name: &str) -> Result<Opening, String> {
        let failed = |error: Error| format!("{name} cannot be read: {error}");
        let bytes = || Arc::clone(&self.bytes) as Arc<dyn ReadAt>;
        let file = TraceFile::of_bytes(bytes(), Path::new(name)).map_err(failed)?;
        let extent = Extent::of_bytes(bytes(), self.domain);
        if let Some(need) = extent.and_then(|extent| too_large_for_a_browser(&extent)) {
            return Err(too_large(name, need));
        }
        // The extent was read at the end of the file.
        self.bytes.restart();
        Opening::new(file, self.domain, INDEX_BYTES).map_err(failed)
    }

    fn work(&mut self, name: &str, blocks: usize, options: &Options) -> bool {
        let Stage::Loading(opening) = &mut self.stage else { return false };
        for _ in 0..blocks {
            match opening.step() {
                Ok(true) => {}
                Ok(false) => {
                    self.finish(name, options);
                    break;
                }
                Err(error) => {
                    self.set(Stage::Failed(format!("{name} cannot be read: {error}")));
                    break;
                }
            }
        }
        true
    }

    fn finish(&mut self, name: &str, options: &Options) {
        let Stage::Loading(opening) = std::mem::replace(&mut self.stage, Stage::Waiting) else { return };
        let trace = Box::new(opening.into_trace());
        if !trace.has(self.domain) {
            let what = if self.domain == Domain::Mapped { "mappings" } else { "blocks of custom allocators" };
            self.set(Stage::Failed(format!("{name} has no {what}.")));
            return;
        }
        let table = answers::table(&trace, options);
        self.set(Stage::Open { trace, table });
    }

    fn set(&mut self, stage: Stage) {
        self.stage = stage;
        self.version += 1;
    }
}

fn too_large(name: &str, need: u64) -> String {
    let gigabytes = need as f64 / 1e9;
    format!(
        "{name} is too large for a browser: it needs up to {gigabytes:.1} GB of memory. On Linux: heaptrack analyze {name}"
    )
}
