//! Opens a trace of any sort and counts it, saying how far it is if that takes long.
use super::event_blocks::EventBlockReader;
use crate::source::PinnedFile;
use analysis::{CodeClasses, Engine};
use format::{BlockKind, Damage, Domain, Flat, RawBlock, Source};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// A counted trace and how well its file could be read.
pub struct Opened {
    pub path: PathBuf,
    /// The file, to read it again.
    pub held: PinnedFile,
    pub engine: Engine,
    pub damage: Vec<Damage>,
    pub damage_count: u64,
    /// The writer came to its end.
    pub finished: bool,
    /// Whose code a frame is.
    pub classes: CodeClasses,
    /// The program reported blocks of its own, which are a trace of their own.
    pub has_custom: bool,
    domain: Domain,
    /// Where each block of events begins; `None` for a file that cannot be gone into.
    places: Option<Vec<u64>>,
}

/// Blocks that wait between the thread that unpacks and the one that counts.
const AHEAD: usize = 4;

impl Opened {
    pub fn open(path: &Path, domain: Domain) -> Result<Self, format::Error> {
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let held = PinnedFile::new(path);
        let mut source = crate::source::open(held.path())?;
        source.set_domain(domain);
        Self::read(path, held, source, domain, Progress::new(length))
    }

    fn read(
        path: &Path,
        held: PinnedFile,
        source: Source,
        domain: Domain,
        mut progress: Progress,
    ) -> Result<Self, format::Error> {
        let mut engine = Engine::new();
        let mut places = (!source.is_kde()).then(Vec::new);
        let source = ahead(source, |place, part| {
            if part.is_events()
                && let Some(places) = &mut places
            {
                places.push(place);
            }
            match part {
                Part::Block(block) => engine.add(block),
                Part::Events(flat) => engine.add_flat(flat),
            }
            progress.at(place);
        });
        progress.end();
        let source = source?;
        Ok(Opened {
            path: path.to_owned(),
            held,
            classes: CodeClasses::new(&engine.definitions().session.exe),
            engine,
            damage: source.damage().to_vec(),
            damage_count: source.damage_count(),
            finished: source.finished(),
            has_custom: source.has_custom(),
            domain,
            places,
        })
    }

    /// All that happened is in it.
    pub fn complete(&self) -> bool {
        self.engine.definitions().is_complete()
            && self.finished
            && self.damage_count == 0
            && self.engine.faults().is_empty()
    }

    pub fn again(&self) -> Result<EventBlockReader, format::Error> {
        EventBlockReader::new(self.held.path(), self.domain, self.places.clone())
    }
}

/// What one thread hands to the other.
enum Part<'a> {
    Block(Cow<'a, RawBlock>),
    /// Events that were taken apart: half of the work of counting them.
    Events(Flat),
}

impl Part<'_> {
    fn is_events(&self) -> bool {
        match self {
            Part::Block(block) => block.kind == BlockKind::Events,
            Part::Events(_) => true,
        }
    }
}

/// Larger blocks of events, which no recording has, are not taken apart ahead: it takes up to twelve times their room.
const FLAT_LIMIT: usize = 2 << 20;

/// Unpacks on a thread of its own while `each` works on the block before.
fn ahead(mut source: Source, mut each: impl FnMut(u64, &Part)) -> Result<Source, format::Error> {
    if source.is_kde() {
        // These have their own threads.
        while let Some(block) = source.next_block()? {
            each(0, &Part::Block(Cow::Borrowed(block)));
        }
        return Ok(source);
    }
    let (full, parts) = sync_channel(AHEAD);
    let (empty, spare) = channel();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("heaptrack-unpack".into());
        let unpacker = builder.spawn_scoped(scope, move || unpack(source, &full, &spare))?;
        for (place, part) in parts {
            each(place, &part);
            if let Part::Events(flat) = part {
                // Nobody waits for it at the end.
                let _ = empty.send(flat);
            }
        }
        unpacker.join().unwrap_or_else(|_| Err(io::Error::other("the file cannot be unpacked").into()))
    })
}

fn unpack(
    mut source: Source,
    full: &SyncSender<(u64, Part<'static>)>,
    spare: &Receiver<Flat>,
) -> Result<Source, format::Error> {
    loop {
        let place = source.offset();
        let Some(block) = source.next_block()? else { return Ok(source) };
        if full.send((place, taken_apart(block, spare))).is_err() {
            return Ok(source);
        }
    }
}

fn taken_apart(block: &RawBlock, spare: &Receiver<Flat>) -> Part<'static> {
    if block.kind == BlockKind::Events && block.payload.len() <= FLAT_LIMIT {
        let mut flat = spare.try_recv().unwrap_or_default();
        if flat.fill(block).is_ok() {
            return Part::Events(flat);
        }
    }
    Part::Block(Cow::Owned(block.clone()))
}

/// How far the reading is, on a terminal, once it has taken a while.
struct Progress {
    length: u64,
    started: Instant,
    last: Option<Instant>,
    is_shown: bool,
}

const PATIENCE: Duration = Duration::from_millis(700);
const STEP: Duration = Duration::from_millis(100);

impl Progress {
    fn new(length: u64) -> Self {
        Progress { length, started: Instant::now(), last: None, is_shown: io::stderr().is_terminal() }
    }

    fn at(&mut self, place: u64) {
        if !self.is_shown || self.length == 0 || place == 0 {
            return;
        }
        let spent = self.started.elapsed();
        if spent < PATIENCE || self.last.is_some_and(|last| last.elapsed() < STEP) {
            return;
        }
        self.last = Some(Instant::now());
        let line = line(place as f64 / self.length as f64, spent);
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    fn end(&self) {
        if self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(share: f64, spent: Duration) -> String {
    const WIDTH: usize = 30;
    let share = share.clamp(0.0, 1.0);
    let done = (share * WIDTH as f64) as usize;
    let left = spent.as_secs_f64() * (1.0 - share) / share.max(0.001);
    format!("reading [{}{}] {:3.0} %, {left:.0} s left", "#".repeat(done), ".".repeat(WIDTH - done), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_said() {
        let half = line(0.5, Duration::from_secs(10));
        assert_eq!(half, "reading [###############...............]  50 %, 10 s left");
        assert!(line(0.0, Duration::from_secs(1)).contains("  0 %"));
        assert!(line(1.0, Duration::from_secs(1)).contains("100 %, 0 s left"));
    }
}
