//! The border between the profiler and the capture library in a process that runs already.
//!
//! Receives: an [`AttachBlock`] of plain integers, which the crate `attach` fills. Returns: the bytes of the [`Core`]
//! that the profiler writes over `CORE` in the target. Must hold: nothing here runs in the target; the addresses are
//! those of the target and are never followed here; every byte is either an integer that comes from the block or zero,
//! so neither a pointer of the profiler nor a padding byte of its memory reaches the target.
//!
//! The profiler writes these bytes while all threads of the target are stopped and the gate is shut. It opens the gate
//! with its last write, so no hook uses a core that is half written. If the profiler is killed in between, the gate
//! stays shut: a hook reads only `Core::gate` then, which is one aligned word, and both its old and its new value point
//! to a shut gate.
use super::{Core, Parts, Private, State};
use crate::clock::{Source, StampClock};
use crate::elf::Headers;
use crate::entry::Range;
use crate::environment::{Carried, Value, Variable};
use crate::local::{Level, Local};
use channel::{Geometry, Region};
use core::mem::offset_of;

/// What the core of an attached process must know. Addresses are those in the target.
///
/// ```text
///   0 | version               |   8 | region                |
///  16 | gate                  |  24 | image_start           |
///  32 | image_end             |  40 | debug                 |
///  48 | program_headers       |  56 | program_header_count  |
///  64 | stack_top             |  72 | geometry, 11 words of 4 bytes ...
/// 116 | pid       | 120 | has_membarrier | 124 | has_counter | 128
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttachBlock {
    /// `CoreTable::version` of the capture library in the target. `to_core_bytes` compares it with
    /// [`AttachBlock::VERSION`].
    pub version: u64,
    /// The fixed part of the shared memory.
    pub region: u64,
    /// The page that reads as zero in a forked child.
    pub gate: u64,
    /// The capture library and what the profiler has mapped for it: `[image_start, image_end)`.
    pub image_start: u64,
    pub image_end: u64,
    /// The loader's `r_debug`, or one that the profiler made for a program without a loader.
    pub debug: u64,
    pub program_headers: u64,
    pub program_header_count: u64,
    /// See `Core::stack_top`.
    pub stack_top: u64,
    pub geometry: Geometry,
    /// In the pid namespace of the target.
    pub pid: u32,
    /// 1 if the target is registered for membarrier, else 0.
    pub has_membarrier: u32,
    /// 1 if the kernel trusts the time stamp counter and threads may be asked whether they may read it, else 0.
    pub has_counter: u32,
}

const _: () = assert!(size_of::<AttachBlock>() == 128);

/// How many bytes [`AttachBlock::to_core_bytes`] returns.
pub const CORE_BYTES: usize = size_of::<Core>();

/// Each type's size, followed by the offsets of its fields that are named.
macro_rules! layout {
    ($($type:ident { $($field:ident),* })*) => { &[$(size_of::<$type>(), $(offset_of!($type, $field),)*)*] };
}

impl AttachBlock {
    /// Tells one layout of the memory that the profiler writes or reads in the target from another: a hash of the
    /// offsets that this crate has in the profiler. The capture library exports the hash of its own offsets
    /// (`CoreTable::version`). The two are equal if the profiler and the capture library are of one build.
    pub const VERSION: u64 = hash(layout! {
        Core { state, gate, parts, clock, carried, stack_top, own }
        Carried { library, variable, value }
        Parts { region, private, debug, program, pid }
        Region {}
        Geometry {}
        Private { modules, known_modules }
        Local { main, nested }
        Level {}
    });

    /// Returns a block of this build. Except for the version and the geometry, everything in it is 0.
    pub const fn of_zeros(geometry: Geometry) -> Self {
        AttachBlock {
            version: Self::VERSION,
            region: 0,
            gate: 0,
            image_start: 0,
            image_end: 0,
            debug: 0,
            program_headers: 0,
            program_header_count: 0,
            stack_top: 0,
            geometry,
            pid: 0,
            has_membarrier: 0,
            has_counter: 0,
        }
    }

    /// Returns the bytes that the profiler writes over the target's `CORE`, or `None` if the capture library in the
    /// target was not built from the same source as this profiler. `passed_on` is for a program that the profiler has
    /// started.
    pub fn to_core_bytes(&self, passed_on: Option<PassedOn<'_>>) -> Option<[u8; CORE_BYTES]> {
        const PARTS: usize = offset_of!(Core, parts);
        const PROGRAM: usize = PARTS + offset_of!(Parts, program);
        if self.version != Self::VERSION {
            return None;
        }
        let source = Source::choose(self.has_counter != 0, self.has_membarrier != 0);
        let private = self.region + self.geometry.private_at() as u64;
        // Zero is right for every field that is not written below: nothing has begun.
        let mut core = Bytes([0; CORE_BYTES]);
        core.put(offset_of!(Core, state), (State::Ready as u32).to_ne_bytes());
        core.put(offset_of!(Core, gate), self.gate.to_ne_bytes());
        core.put(PARTS + offset_of!(Parts, region), Region::bytes_for_another_process(self.region, self.geometry));
        core.put(PARTS + offset_of!(Parts, private), private.to_ne_bytes());
        core.put(PARTS + offset_of!(Parts, debug), self.debug.to_ne_bytes());
        core.put(PROGRAM + offset_of!(Headers, first), self.program_headers.to_ne_bytes());
        core.put(PROGRAM + offset_of!(Headers, count), self.program_header_count.to_ne_bytes());
        core.put(PARTS + offset_of!(Parts, pid), self.pid.to_ne_bytes());
        core.put(offset_of!(Core, clock), (source as u32).to_ne_bytes());
        core.put(offset_of!(Core, stack_top), self.stack_top.to_ne_bytes());
        core.put(offset_of!(Core, own) + offset_of!(Range, start), self.image_start.to_ne_bytes());
        core.put(offset_of!(Core, own) + offset_of!(Range, end), self.image_end.to_ne_bytes());
        if let Some(passed_on) = passed_on {
            const CARRIED: usize = offset_of!(Core, carried);
            core.put_value(CARRIED + offset_of!(Carried, library), passed_on.library)?;
            let (variable, value) = match passed_on.to {
                Recorder::Channel(value) => (Variable::Channel, value),
                Recorder::Hub(value) => (Variable::Follow, value),
            };
            core.put_value(CARRIED + offset_of!(Carried, value), value)?;
            core.put(CARRIED + offset_of!(Carried, variable), (variable as u32).to_ne_bytes());
        }
        Some(core.0)
    }
}

/// What an exec of the program must pass on to a new program that loads the capture library.
#[derive(Clone, Copy, Debug)]
pub struct PassedOn<'a> {
    /// The path of the capture library.
    pub library: &'a [u8],
    pub to: Recorder<'a>,
}

/// Where a new program finds its recorder.
#[derive(Clone, Copy, Debug)]
pub enum Recorder<'a> {
    /// The value of HEAPTRACK_CHANNEL, without the number of a descriptor.
    Channel(&'a [u8]),
    /// The value of HEAPTRACK_FOLLOW: a tree of processes is followed.
    Hub(&'a [u8]),
}

/// The fields above are as large as the integers that are written over them.
const _: () = assert!(size_of::<StampClock>() == 4 && size_of::<*const u8>() == 8 && size_of::<usize>() == 8);

/// The bytes of a `Core`, zero until `put` writes a field.
struct Bytes([u8; CORE_BYTES]);

impl Bytes {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&bytes);
        }
    }

    /// Writes a `Value`. Returns `None` if the text is too long for one.
    fn put_value(&mut self, at: usize, text: &[u8]) -> Option<()> {
        if text.len() >= Value::LENGTH {
            return None;
        }
        let start = at + Value::BYTES_AT;
        self.0.get_mut(start..start + text.len())?.copy_from_slice(text);
        self.put(at + Value::LEN_AT, text.len().to_ne_bytes());
        Some(())
    }
}

/// FNV-1a over the numbers.
const fn hash(numbers: &[usize]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < numbers.len() {
        hash = (hash ^ numbers[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::super::WRITER_MEMORY;
    use super::*;
    use core::sync::atomic::Ordering;

    const BLOCK: AttachBlock = AttachBlock {
        version: AttachBlock::VERSION,
        region: 0x7000_0000_0000,
        gate: 0x7000_1000_0000,
        image_start: 0x7000_2000_0000,
        image_end: 0x7000_2010_0000,
        debug: 0x7000_3000_0000,
        program_headers: 0x7000_4000_0000,
        program_header_count: 9,
        stack_top: 0x7fff_ffff_0000,
        geometry: Geometry::tight(WRITER_MEMORY),
        pid: 4711,
        has_membarrier: 1,
        has_counter: 1,
    };

    #[test]
    fn the_bytes_are_the_core_that_the_block_describes() {
        let Some(bytes) = BLOCK.to_core_bytes(Some(PASSED_ON)) else { panic!("of another build") };
        // SAFETY: the bytes of a `Core`, as the target would have them. No address in it is followed below.
        let core = unsafe { Box::new(bytes.as_ptr().cast::<Core>().read_unaligned()) };
        let parts = core.parts();
        assert_eq!(core.state.load(Ordering::Relaxed), State::Ready as u32);
        assert_eq!(core.gate.load(Ordering::Relaxed) as u64, BLOCK.gate);
        assert_eq!(*parts.region.geometry(), BLOCK.geometry);
        assert_eq!(parts.region.near_end(), BLOCK.region + BLOCK.geometry.near_len() as u64);
        assert_eq!(parts.region.fixed_end(), BLOCK.region + BLOCK.geometry.fixed_len() as u64);
        assert_eq!(parts.private as u64, BLOCK.region + BLOCK.geometry.private_at() as u64);
        assert_eq!((parts.debug as u64, parts.pid), (BLOCK.debug, BLOCK.pid));
        assert_eq!((parts.program.first as u64, parts.program.count as u64), (BLOCK.program_headers, 9));
        assert!(core.has_plain_stamps());
        assert_eq!(core.stack_top.load(Ordering::Relaxed), BLOCK.stack_top);
        assert_eq!(core.own, Range { start: BLOCK.image_start, end: BLOCK.image_end });
        assert!(core.only.load(Ordering::Relaxed).is_null());
        // SAFETY: only this test uses the core.
        let carried = unsafe { &*core.carried.get() };
        assert!(carried.variable == Variable::Channel);
        assert_eq!((carried.library.get(), carried.value.get()), (&b"/tmp/library.so"[..], &b"-,/proc/1/fd/3"[..]));
        let long = PassedOn { library: &[b'x'; Value::LENGTH], ..PASSED_ON };
        assert!(BLOCK.to_core_bytes(Some(long)).is_none());
    }

    const PASSED_ON: PassedOn<'_> = PassedOn { library: b"/tmp/library.so", to: Recorder::Channel(b"-,/proc/1/fd/3") };

    #[test]
    fn an_image_of_another_build_is_refused() {
        assert!(AttachBlock { version: AttachBlock::VERSION + 1, ..BLOCK }.to_core_bytes(None).is_none());
    }

    /// If all addresses in the block are 0, only the state, the geometry and two addresses that are computed from it
    /// are not 0. So no more bytes than these may differ from 0.
    #[test]
    fn nothing_but_the_block_is_in_the_bytes() {
        let block = AttachBlock { has_membarrier: 1, has_counter: 1, ..AttachBlock::of_zeros(BLOCK.geometry) };
        let Some(bytes) = block.to_core_bytes(None) else { panic!("of another build") };
        let written = bytes.iter().filter(|byte| **byte != 0).count();
        let sizes = size_of::<Geometry>() + 3 * size_of::<u64>();
        assert!(written <= sizes, "{written} of at most {sizes}");
    }
}
