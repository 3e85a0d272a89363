//! A counted trace that can be asked.
use crate::event_blocks::{EventBlockReader, EventBlocks};
use crate::growth::{Growth, Tail, is_locked, is_replaced};
use crate::heap_profile;
use crate::read_ahead::{Part, read_ahead};
use crate::shared_bytes::SharedBytes;
use crate::trace_file::TraceFile;
use analysis::view::{self, View};
use analysis::{AnswerError, CodeClasses, Engine, Intervals, Profile, Query, Report, StackTable, Suppressions};
use format::{BlockKind, Damage, Domain, Error, RawBlock, Reader, Source};
use import::Kind;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

/// How to open a trace. The default is one pass over a file that is not followed, for few questions.
///
/// ```
/// use heaptrack_trace::OpenOptions;
///
/// let options = OpenOptions::new().indexed(true);
/// let mut last = 0;
/// let trace = options.open("../format/tests/data/v1.htz", |position, size| last = position.min(size))?;
/// assert!(last > 0 && !trace.is_live());
/// # Ok::<(), format::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    domain: Domain,
    is_indexed: bool,
    index_bytes: Option<usize>,
    is_followed: bool,
}

impl OpenOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the blocks of malloc, which is the default, or those that the program reported itself.
    #[must_use]
    pub const fn domain(self, domain: Domain) -> Self {
        OpenOptions { domain, ..self }
    }

    /// Builds an index while the file is read. Opening takes longer, and answers about any range of time are quick.
    #[must_use]
    pub const fn indexed(self, is_indexed: bool) -> Self {
        OpenOptions { is_indexed, ..self }
    }

    /// Limits the memory of the index to about this many bytes. Answers about ranges of a large trace take longer then.
    #[must_use]
    pub const fn index_bytes(self, bytes: usize) -> Self {
        OpenOptions { index_bytes: Some(bytes), ..self }
    }

    /// Finds out whether the file is still being written, so that [`OpenTrace::read_more`] can follow it.
    #[must_use]
    pub const fn followed(self, is_followed: bool) -> Self {
        OpenOptions { is_followed, ..self }
    }

    /// Opens a path and counts the trace. `progress` receives the position in the file and the file's size, after each
    /// block. A file of KDE's heaptrack reports no progress, because it has no positions.
    #[cfg(unix)]
    pub fn open(self, path: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<OpenTrace, Error> {
        self.open_file(TraceFile::open(path)?, progress)
    }

    /// As [`OpenOptions::open`], for a file that is open already.
    pub fn open_file(self, file: TraceFile, progress: impl FnMut(u64, u64)) -> Result<OpenTrace, Error> {
        let mut trace = self.unread(file);
        if let Some(kind) = trace.file.profile() {
            trace.read_profile(kind)?;
        } else if trace.file.is_kde() {
            trace.read_kde(self)?;
        } else {
            trace.read_own(self, progress)?;
        }
        Ok(trace)
    }

    /// A trace of which nothing is counted yet.
    pub(crate) fn unread(self, file: TraceFile) -> OpenTrace {
        OpenTrace {
            file: file.with_domain(self.domain),
            engine: match self.index_bytes {
                _ if !self.is_indexed => Engine::new(),
                Some(bytes) => Engine::indexed_within(bytes),
                None => Engine::indexed(),
            }
            .of_domain(self.domain),
            events: EventBlocks::Places(Vec::new()),
            is_finished: false,
            damage: Vec::new(),
            damage_count: 0,
            domains: [false; Domain::ALL.len()],
            tail: None,
        }
    }
}

/// A trace whose whole session is counted.
pub struct OpenTrace {
    pub(crate) file: TraceFile,
    pub(crate) engine: Engine,
    pub(crate) events: EventBlocks,
    is_finished: bool,
    damage: Vec<Damage>,
    damage_count: u64,
    /// In the order of [`Domain`].
    domains: [bool; Domain::ALL.len()],
    /// Present while the file may grow.
    tail: Option<Tail>,
}

/// A question that could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The file cannot be read a second time.
    #[error("{0}")]
    Read(Error),
    /// The question has no answer.
    #[error("{0}")]
    Answer(AnswerError),
}

impl OpenTrace {
    /// Opens a file with the default options: see [`OpenOptions`].
    #[cfg(unix)]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        OpenOptions::new().open(path, |_, _| ())
    }

    /// The path with which the trace was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The file, for callers that read its blocks again from the beginning.
    pub const fn file(&self) -> &TraceFile {
        &self.file
    }

    /// The totals, the definitions and all other numbers.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whose blocks are counted.
    pub const fn domain(&self) -> Domain {
        self.file.domain()
    }

    /// True if the writer finished the file.
    pub const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// True while the file is being written. Always false unless the trace was opened with [`OpenOptions::followed`].
    pub const fn is_live(&self) -> bool {
        self.tail.is_some()
    }

    /// True if all events of the session are in the trace: the file was finished, and no event is lost or damaged.
    pub fn is_complete(&self) -> bool {
        self.engine.definitions().is_complete()
            && self.is_finished
            && self.damage_count == 0
            && self.engine.faults().is_empty()
    }

    /// The places of the file that cannot be read, at most the first 256.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The number of places of the file that cannot be read.
    pub const fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// True if the program reported blocks of its own allocators. They are a trace of their own, in [`Domain::Custom`].
    pub const fn has_custom(&self) -> bool {
        self.has(Domain::Custom)
    }

    /// True if the trace has blocks of a domain. Every trace has malloc's.
    pub const fn has(&self, domain: Domain) -> bool {
        matches!(domain, Domain::Malloc) || self.domains[domain as usize]
    }

    /// A reader of the blocks of events. Every question that [`Engine`] cannot answer from its sums needs one.
    pub fn blocks(&self) -> Result<EventBlockReader, Error> {
        EventBlockReader::new(&self.file, &self.events)
    }

    /// The table of all stacks, with the class of each level. `known` marks the stacks whose leaks are suppressed.
    pub fn table(&self, classes: &CodeClasses, known: Suppressions) -> StackTable {
        StackTable::new(self.engine.definitions(), classes, known)
    }

    /// The costs of each stack within the part of the trace that the query selects.
    pub fn profile(&self, query: &Query) -> Result<Profile, AskError> {
        let mut blocks = self.blocks().map_err(AskError::Read)?;
        self.engine.profile(&mut blocks, query).map_err(|gone| AskError::Answer(gone.into()))
    }

    /// How certain the profile of a query is. `None` if every block was recorded.
    pub fn intervals(&self, query: &Query) -> Result<Option<Intervals>, AskError> {
        if self.engine.definitions().session.sampling.is_none() {
            return Ok(None);
        }
        let mut blocks = self.blocks().map_err(AskError::Read)?;
        self.engine.intervals(&mut blocks, query).map_err(|gone| AskError::Answer(gone.into()))
    }

    /// Writes a view as JSON. `base` is the trace that `compare` names in the query, if it names a file, and the table
    /// of its stacks.
    pub fn answer(
        &self,
        view: View,
        query: &Query,
        table: &StackTable,
        base: Option<(&OpenTrace, &StackTable)>,
        out: &mut dyn Write,
    ) -> Result<(), AskError> {
        let mut blocks = self.blocks().map_err(AskError::Read)?;
        let mut trace = self.for_view(table, &mut blocks);
        let Some((base, base_table)) = base else {
            return view::answer(view, query, &mut trace, None, out).map_err(AskError::Answer);
        };
        let mut base_blocks = base.blocks().map_err(AskError::Read)?;
        let mut base = base.for_view(base_table, &mut base_blocks);
        view::answer(view, query, &mut trace, Some(&mut base), out).map_err(AskError::Answer)
    }

    /// The text that `print --view NAME` prints.
    pub fn view(
        &self,
        name: &str,
        query: &Query,
        table: &StackTable,
        base: Option<(&OpenTrace, &StackTable)>,
    ) -> Result<String, crate::Error> {
        let view = View::parse(name).ok_or_else(|| crate::Error::Selection(format!("there is no view `{name}`")))?;
        let mut query = query.clone();
        for trace in [Some(self), base.map(|(base, _)| base)].into_iter().flatten() {
            if let Some(misfit) = query.misfit(&trace.engine) {
                return Err(crate::Error::Selection(misfit.to_string()));
            }
            if let Some(known) = trace.engine.definitions().profile {
                query = known.check(view, &query)?;
            }
        }
        let mut text = Vec::new();
        self.answer(view, &query, table, base, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// This trace as the functions of [`analysis::view`] take it.
    pub fn for_view<'a>(&'a self, table: &'a StackTable, blocks: &'a mut EventBlockReader) -> view::Trace<'a> {
        view::Trace { engine: &self.engine, table, blocks, complete: self.is_complete() }
    }

    /// The costs of the whole session by stack, which need no second pass, and the file, for callers that also want its
    /// events. Returns `None` for a trace that was opened with [`OpenOptions::indexed`]: ask it for a profile.
    pub fn into_report(self) -> Option<(Report, TraceFile)> {
        Some((self.engine.into_report()?, self.file))
    }

    /// Reads the blocks that were written since the last read. Does nothing if the trace is not live.
    pub fn read_more(&mut self) -> Growth {
        let Some(mut tail) = self.tail.take() else { return Growth::Same };
        let was_locked = self.file.file().is_some_and(is_locked);
        // The blocks before a read error were counted. The next call tries again.
        let has_grown = self.count_rest(&mut tail.reader, |_| ()).unwrap_or(false);
        if has_grown {
            tail.quiet_since = Instant::now();
        } else if self.file.file().is_some_and(|file| is_replaced(self.file.path(), file)) {
            self.tail = Some(tail);
            return Growth::Replaced;
        }
        if tail.is_over(was_locked) {
            self.engine.end_of_events();
        } else {
            self.tail = Some(tail);
        }
        if has_grown { Growth::Grew } else { Growth::Same }
    }

    fn read_own(&mut self, options: OpenOptions, mut progress: impl FnMut(u64, u64)) -> Result<(), Error> {
        let opened = self.file.file().map(File::metadata).transpose()?;
        let length = self.file.length()?;
        let mut progress = |position| progress(position, length);
        let mut reader = Reader::new(self.file.reader())?;
        reader.set_domain(self.file.domain());
        if options.is_indexed {
            // A server opens several traces at once, so none of them may keep a queue of unpacked blocks.
            self.count_rest(&mut reader, progress)?;
        } else {
            reader = read_ahead(reader, |place, part| {
                self.count(place, part);
                progress(place);
            })?;
            self.note_state(&reader);
        }
        self.tail = match self.file.file().zip(opened).filter(|_| options.is_followed) {
            Some((file, opened)) => Tail::new(reader, file, &opened),
            None => None,
        };
        if self.tail.is_none() {
            self.engine.end_of_events();
        }
        Ok(())
    }

    fn count(&mut self, place: u64, part: &Part) {
        if part.is_events() {
            self.remember(place);
        }
        match part {
            Part::Block(block) => self.engine.add(block),
            Part::Events(flat) => self.engine.add_flat(flat),
        }
    }

    fn remember(&mut self, place: u64) {
        if let EventBlocks::Places(places) = &mut self.events {
            places.push(place);
        }
    }

    /// Counts all blocks up to the present end of the file. Returns true if there were any.
    fn count_rest(&mut self, reader: &mut Reader<SharedBytes>, mut progress: impl FnMut(u64)) -> Result<bool, Error> {
        let mut has_more = false;
        while self.count_next(reader)? {
            has_more = true;
            progress(reader.offset());
        }
        self.note_state(reader);
        Ok(has_more)
    }

    /// Counts one block. Returns false at the present end of the file.
    pub(crate) fn count_next(&mut self, reader: &mut Reader<SharedBytes>) -> Result<bool, Error> {
        let place = reader.offset();
        let Some(block) = reader.next_block()? else { return Ok(false) };
        if block.kind == BlockKind::Events {
            self.remember(place);
        }
        self.engine.add(block);
        Ok(true)
    }

    pub(crate) fn note_state(&mut self, reader: &Reader<SharedBytes>) {
        self.is_finished = reader.finished();
        self.damage = reader.damage().to_vec();
        self.damage_count = reader.damage_count();
        self.domains = Domain::ALL.map(|domain| reader.has(domain));
    }

    /// A heap profile of another tool has only sums.
    pub(crate) fn read_profile(&mut self, kind: Kind) -> Result<(), Error> {
        let profile = heap_profile::read(self.file.reader(), kind)?;
        let path = self.file.file().map(|_| self.file.path());
        heap_profile::add(&profile, path, &mut self.engine);
        self.events = EventBlocks::Memory(Vec::new().into());
        self.is_finished = true;
        Ok(())
    }

    /// A file of KDE's heaptrack is translated while it is read, by threads of its source.
    fn read_kde(&mut self, options: OpenOptions) -> Result<(), Error> {
        let mut source = if options.is_indexed { self.file.source()? } else { self.file.counted_source()? };
        let mut kept: Vec<RawBlock> = Vec::new();
        while self.count_translated(&mut source, options.is_indexed.then_some(&mut kept))? {}
        if let Some(counts) = source.take_counts() {
            self.engine.add_kde_counts(counts);
        }
        self.events = if options.is_indexed { EventBlocks::Memory(kept.into()) } else { EventBlocks::Stream };
        self.note_translation(&source);
        Ok(())
    }

    /// Counts one block of a file of KDE's heaptrack. A block of events is also added to `kept`. Returns false at the end.
    pub(crate) fn count_translated<R: Read>(
        &mut self,
        source: &mut Source<R>,
        kept: Option<&mut Vec<RawBlock>>,
    ) -> Result<bool, Error> {
        let Some(block) = source.next_block()? else { return Ok(false) };
        self.engine.add(block);
        if let Some(kept) = kept.filter(|_| block.kind == BlockKind::Events) {
            kept.push(block.clone());
        }
        Ok(true)
    }

    pub(crate) fn note_translation<R: Read>(&mut self, source: &Source<R>) {
        self.is_finished = source.finished();
        self.damage = source.damage().to_vec();
        self.damage_count = source.damage_count();
    }
}
