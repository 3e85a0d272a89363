//! Unpacks the blocks of a file on one thread while another thread counts them.
//!
//! Receives: a reader at its beginning. Returns: the same reader at the end of the file, after every block was handed
//! to the caller in the order of the file. Must hold: at most `AHEAD` unpacked blocks wait, so memory does not grow
//! with the file.
use crate::shared_bytes::SharedBytes;
use format::{BlockKind, Error, Flat, RawBlock, Reader};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

/// The number of blocks that may wait between the two threads.
const AHEAD: usize = 4;

/// A larger block of events is not decoded ahead, because that takes up to twelve times its memory. No recording has
/// such a block.
const FLAT_LIMIT: usize = 2 << 20;

/// What the unpacking thread hands over.
pub(crate) enum Part {
    Block(RawBlock),
    /// Decoded events. Decoding is half of the work of counting them.
    Events(Flat),
}

impl Part {
    pub(crate) fn is_events(&self) -> bool {
        match self {
            Part::Block(block) => block.kind == BlockKind::Events,
            Part::Events(_) => true,
        }
    }
}

/// Calls `each` with the position and the content of every block. Returns the reader at the end of the file.
pub(crate) fn read_ahead(
    reader: Reader<SharedBytes>,
    mut each: impl FnMut(u64, &Part),
) -> Result<Reader<SharedBytes>, Error> {
    let (full, parts) = sync_channel(AHEAD);
    let (empty, spare) = channel();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("heaptrack-unpack".into());
        let unpacker = builder.spawn_scoped(scope, move || unpack(reader, &full, &spare))?;
        for (place, part) in parts {
            each(place, &part);
            if let Part::Events(flat) = part {
                // At the end of the file, the other thread takes no more buffers.
                let _ = empty.send(flat);
            }
        }
        unpacker.join().unwrap_or_else(|_| Err(io::Error::other("the file cannot be unpacked").into()))
    })
}

fn unpack(
    mut reader: Reader<SharedBytes>,
    full: &SyncSender<(u64, Part)>,
    spare: &Receiver<Flat>,
) -> Result<Reader<SharedBytes>, Error> {
    loop {
        let place = reader.offset();
        let Some(block) = reader.next_block()? else { return Ok(reader) };
        if full.send((place, decoded(block, spare))).is_err() {
            return Ok(reader);
        }
    }
}

fn decoded(block: &RawBlock, spare: &Receiver<Flat>) -> Part {
    if block.kind == BlockKind::Events && block.payload.len() <= FLAT_LIMIT {
        let mut flat = spare.try_recv().unwrap_or_default();
        if flat.fill(block).is_ok() {
            return Part::Events(flat);
        }
    }
    Part::Block(block.clone())
}
