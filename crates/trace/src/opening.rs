//! A trace that is read in steps.
//!
//! Receives: bytes. Returns: an [`OpenTrace`] with an index, after as many steps as the caller likes. Must hold: one step
//! takes a bounded time, and a trace that was read in steps gives the same answers as one that was read at once.
use crate::event_blocks::EventBlocks;
use crate::open::{OpenOptions, OpenTrace};
use crate::shared_bytes::SharedBytes;
use crate::trace_file::TraceFile;
use format::{Domain, Error, RawBlock, Reader, Source};

/// For a caller that has one thread, and other work to do between two steps. It gives up by dropping this.
pub struct Opening {
    trace: OpenTrace,
    rest: Rest,
}

enum Rest {
    Own(Box<Reader<SharedBytes>>),
    Kde(Box<Source<SharedBytes>>, Vec<RawBlock>),
    /// A heap profile of another tool, which is read in one step.
    Profile(import::Kind),
    Nothing,
}

impl Opening {
    /// Begins to read the blocks of one domain. The index takes at most about `index_bytes` bytes.
    pub fn new(file: TraceFile, domain: Domain, index_bytes: usize) -> Result<Self, Error> {
        let trace = OpenOptions::new().domain(domain).indexed(true).index_bytes(index_bytes).unread(file);
        let rest = if let Some(kind) = trace.file.profile() {
            Rest::Profile(kind)
        } else if trace.file.is_kde() {
            Rest::Kde(Box::new(trace.file.kde_source_here()?), Vec::new())
        } else {
            let mut reader = Box::new(Reader::new(trace.file.reader())?);
            reader.set_domain(domain);
            Rest::Own(reader)
        };
        Ok(Opening { trace, rest })
    }

    /// Reads one block. Returns false if nothing is left.
    pub fn step(&mut self) -> Result<bool, Error> {
        let has_more = match &mut self.rest {
            Rest::Own(reader) => self.trace.count_next(reader)?,
            Rest::Kde(source, kept) => self.trace.count_translated(source, Some(kept))?,
            Rest::Profile(_) | Rest::Nothing => false,
        };
        if !has_more {
            self.end()?;
        }
        Ok(has_more)
    }

    fn end(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Own(reader) => {
                self.trace.note_state(&reader);
                self.trace.engine.end_of_events();
            }
            Rest::Kde(source, kept) => {
                self.trace.note_translation(&source);
                self.trace.events = EventBlocks::Memory(kept.into());
            }
            Rest::Profile(kind) => self.trace.read_profile(kind)?,
            Rest::Nothing => {}
        }
        Ok(())
    }

    /// The trace, after the last step.
    pub fn into_trace(self) -> OpenTrace {
        self.trace
    }
}
