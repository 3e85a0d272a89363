//! How a process of a followed tree asks the profiler to patch the program that it is about to execute, because the
//! capture library cannot be preloaded into that program; and the programs that ran unrecorded.
use crate::numbered::numbered;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most processes that can ask at the same time. Another one runs its program unrecorded.
pub const STARTS: usize = 8;
/// The most programs whose names are kept if they run unrecorded.
pub const UNRECORDED: usize = 16;
/// The length of a name, in words of eight bytes.
const NAME_WORDS: usize = 5;

numbered! {
    /// Stored in `StartRequest::step`. T is the process that executes the program, C the profiler.
    ///
    /// ```text
    /// Idle --T--> Asked --C--> Seen --C: traces T--> Held --T: execve, C: patches, releases--> Idle
    ///               |            |                     |
    ///               |            +--C--> Refused --T--> Idle
    ///               |            |                     |
    ///               +------------+--T: no patience--> GaveUp --C: releases--> Idle
    ///                                                  ^
    ///                                 T: execve failed-+
    /// ```
    pub enum StartStep: u32 { Idle = 0, Asked = 1, Seen = 2, Held = 3, Refused = 4, GaveUp = 5 }
}

/// A place for a process that asks. If the process dies, the profiler makes the place free again.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct StartRequest {
    /// The process that has taken this place, 0 = none.
    pub pid: AtomicU32,
    /// `StartStep`, a futex.
    pub step: AtomicU32,
}

impl StartRequest {
    /// Target: takes the place. Returns false if another process has it.
    pub fn take(&self, pid: u32) -> bool {
        let is_taken = self.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_taken {
            self.step.store(StartStep::Asked as u32, Ordering::Release);
        }
        is_taken
    }

    /// Makes the place free for another process.
    pub fn free(&self) {
        self.step.store(StartStep::Idle as u32, Ordering::Release);
        self.pid.store(0, Ordering::Release);
    }

    pub fn is_at(&self, step: StartStep) -> bool {
        self.step.load(Ordering::Acquire) == step as u32
    }

    /// Makes a step. Returns false if the other side has made one meanwhile.
    pub fn advance(&self, from: StartStep, to: StartStep) -> bool {
        self.step.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A program that ran unrecorded, and how often. Written by targets.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct UnrecordedProgram {
    /// `UnrecordedExec`, 0 = the place is free.
    pub why: AtomicU32,
    pub count: AtomicU32,
    /// The last part of its path, which may be cut, with zeros after it.
    pub name: [AtomicU64; NAME_WORDS],
}

/// A name as it is stored.
pub type ShortName = [u64; NAME_WORDS];

/// Returns the last part of a path, cut to the length that is stored.
pub fn short_name(path: &[u8]) -> ShortName {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let byte = |at: usize| name.get(at).copied().unwrap_or(0) as u64;
    core::array::from_fn(|word| (0..8).fold(0, |sum, i| sum | byte(8 * word + i) << (8 * i)))
}

impl UnrecordedProgram {
    /// Target: counts one run of the program if this place has its name, or is free. Two processes that take one free
    /// place at the same time may mix up their names; the counts stay right.
    pub fn add(&self, name: &ShortName, why: u32) -> bool {
        let has_name = || self.name.iter().zip(name).all(|(stored, word)| stored.load(Ordering::Relaxed) == *word);
        let known = self.why.compare_exchange(0, why, Ordering::AcqRel, Ordering::Acquire);
        if known.is_ok() {
            self.name.iter().zip(name).for_each(|(stored, word)| stored.store(*word, Ordering::Relaxed));
        } else if known != Err(why) || !has_name() {
            return false;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_program_are_counted_in_one_place() {
        let places: [UnrecordedProgram; 2] = core::array::from_fn(|_| UnrecordedProgram {
            why: AtomicU32::new(0),
            count: AtomicU32::new(0),
            name: core::array::from_fn(|_| AtomicU64::new(0)),
        });
        let add = |path: &[u8], why| places.iter().any(|place| place.add(&short_name(path), why));
        assert!(add(b"/bin/busybox", 2) && add(b"busybox", 2) && add(b"/bin/busybox", 3) && !add(b"/bin/su", 3));
        assert_eq!([&places[0], &places[1]].map(|place| place.count.load(Ordering::Relaxed)), [2, 1]);
        assert_eq!(places[0].name[0].load(Ordering::Relaxed).to_le_bytes(), *b"busybox\0");
        assert_eq!(short_name(&[b'x'; 99])[4].to_le_bytes(), [b'x'; 8], "cut");
    }

    #[test]
    fn a_place_belongs_to_one_process() {
        let request = StartRequest { pid: AtomicU32::new(0), step: AtomicU32::new(0) };
        assert!(request.take(7) && !request.take(8) && request.is_at(StartStep::Asked));
        assert!(
            request.advance(StartStep::Asked, StartStep::Seen) && !request.advance(StartStep::Asked, StartStep::GaveUp)
        );
        request.free();
        assert!(request.take(8));
    }
}
