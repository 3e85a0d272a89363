//! A KDE file that is translated by threads of its own, while the caller works on earlier blocks.
use super::{KdeCounts, KdeReader, Shorten};
use crate::{BlockKind, Damage, Error, RawBlock};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The most translated blocks that wait for the caller.
const BLOCKS: usize = 4;

enum Message {
    Block(RawBlock),
    End(Ending),
    Failed(Error),
}

#[derive(Default)]
struct Ending {
    finished: bool,
    damage: Vec<Damage>,
    damage_count: u64,
    counts: Option<Box<KdeCounts>>,
}

/// What the caller wants to know of a file.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) shorten: Option<Shorten>,
    /// The counts of its events, and not the events.
    pub(crate) is_counted: bool,
}

impl Wanted {
    fn tell<R: Read>(self, reader: &mut KdeReader<R>) {
        reader.set_shorten(self.shorten);
        if self.is_counted {
            reader.count_classes();
        }
    }
}

/// The same interface as `KdeReader`. `finished` and `damage` are valid only after the last block.
pub struct KdeAhead {
    messages: Receiver<Message>,
    block: RawBlock,
    skipped: &'static [BlockKind],
    is_raw: bool,
    ending: Option<Ending>,
}

impl KdeAhead {
    /// Starts two threads, one that unpacks and one that translates, and between them one that decodes if events are
    /// counted. If they cannot be started, the caller's thread does the work.
    pub(crate) fn open(path: &Path, first: &[u8], wanted: Wanted) -> Result<Result<Self, KdeReader<File>>, Error> {
        let mut reader = match KdeReader::unpacked_ahead(File::open(path)?, first) {
            Err(Error::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                KdeReader::new(File::open(path)?, first)?
            }
            other => other?,
        };
        wanted.tell(&mut reader);
        let is_raw = reader.is_raw();
        let (sender, messages) = sync_channel(BLOCKS);
        let builder = std::thread::Builder::new().name("heaptrack-kde".into());
        match builder.spawn(move || translate(reader, &sender)) {
            Err(_) => {
                let mut here = KdeReader::new(File::open(path)?, first)?;
                wanted.tell(&mut here);
                Ok(Err(here))
            }
            Ok(_) => {
                let block = RawBlock { kind: BlockKind::Session, payload: Vec::new() };
                Ok(Ok(KdeAhead { messages, block, skipped: &[], is_raw, ending: None }))
            }
        }
    }

    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        while self.ending.is_none() {
            match self.messages.recv() {
                Ok(Message::Block(block)) if self.skipped.contains(&block.kind) => {}
                Ok(Message::Block(block)) => {
                    self.block = block;
                    return Ok(Some(&self.block));
                }
                Ok(Message::End(ending)) => self.ending = Some(ending),
                Ok(Message::Failed(error)) => return Err(error),
                // The thread sends how it ended before it exits.
                Err(_) => self.ending = Some(Ending::default()),
            }
        }
        Ok(None)
    }

    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        self.skipped = kinds;
    }

    pub const fn is_raw(&self) -> bool {
        self.is_raw
    }

    pub const fn finished(&self) -> bool {
        matches!(&self.ending, Some(ending) if ending.finished)
    }

    pub fn damage(&self) -> &[Damage] {
        self.ending.as_ref().map_or(&[], |ending| &ending.damage)
    }

    pub fn take_counts(&mut self) -> Option<Box<KdeCounts>> {
        self.ending.as_mut()?.counts.take()
    }

    pub const fn damage_count(&self) -> u64 {
        match &self.ending {
            Some(ending) => ending.damage_count,
            None => 0,
        }
    }
}

/// Runs until the file ends or the caller drops its receiver.
fn translate(mut reader: KdeReader<File>, messages: &SyncSender<Message>) {
    loop {
        let message = match reader.take_block() {
            Ok(Some(block)) => Message::Block(block),
            Ok(None) => Message::End(Ending {
                finished: reader.finished(),
                damage: reader.damage().to_vec(),
                damage_count: reader.damage_count(),
                counts: reader.take_counts(),
            }),
            Err(error) => Message::Failed(error),
        };
        let is_last = !matches!(message, Message::Block(_));
        if messages.send(message).is_err() || is_last {
            return;
        }
    }
}
