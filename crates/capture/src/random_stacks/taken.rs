//! Takes a stack twice: through the memo as a hook does it, and by a walk without a memo.
use super::library::Library;
use crate::context::Context;
use crate::core::{ACTIVE, AttachBlock, Core, EXACT, WRITER_MEMORY, adopt};
use crate::memo::{FrameState, Memo, Miss};
use crate::modules::Description;
use crate::proof::Proof;
use crate::resume_state::ResumeState;
use crate::walk::{Scratch, Walk};
use channel::{FrameKey, Geometry, Region, StackId};
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Counts the cases that must occur, because otherwise the test would test nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub samples: u64,
    /// Stacks that were found in the memo, by `find_youngest` or by `find_older`.
    pub youngest: u64,
    pub older: u64,
    /// Walks that ended at a frame that the memo knew.
    pub tails: u64,
    /// Stacks that were walked because the stack pointer had left the pages of guessed frames.
    pub left_guesses: u64,
    pub cut: u64,
    pub jumps: u64,
    pub exceptions: u64,
    pub switches: u64,
    pub unmapped: u64,
    pub replaced: u64,
}

impl Seen {
    pub const COUNT: usize = size_of::<Seen>() / 8;

    pub fn numbers(&self) -> [u64; Self::COUNT] {
        [
            self.samples,
            self.youngest,
            self.older,
            self.tails,
            self.left_guesses,
            self.cut,
            self.jumps,
            self.exceptions,
            self.switches,
            self.unmapped,
            self.replaced,
        ]
    }
}

/// As in `events/stacks.rs`.
const FEW_JUMPS: u32 = 1;
const PATIENCE: u32 = 64;

/// The state of a thread that records, and the paths that it has written.
pub struct Taken {
    core: Box<Core>,
    region: *mut u8,
    _gate: Box<AtomicU32>,
    memo: Box<Memo>,
    proofs: [Proof; 2],
    scratch: [Box<Scratch>; 2],
    generation: u32,
    patched_together: u32,
    /// By the number of a stack: its leaf frame, and the number of the caller's stack.
    told: Vec<Option<(FrameKey, StackId)>>,
    pub seen: Seen,
}

impl Taken {
    pub fn new(library: &mut Library, is_large: bool) -> Taken {
        let geometry = Geometry::tight(WRITER_MEMORY);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let region = unsafe { libc::mmap(ptr::null_mut(), geometry.fixed_len(), protection, flags, -1, 0) };
        assert!(region != libc::MAP_FAILED);
        let gate = Box::new(AtomicU32::new(ACTIVE | EXACT));
        // The pid of no thread, so that this thread does not count as the first one: its thread block is at the upper
        // end of its stack.
        let block = AttachBlock {
            region: region as u64,
            gate: ptr::from_ref(&*gate) as u64,
            pid: 0,
            ..AttachBlock::of_zeros(geometry)
        };
        let mut modules = loaded_modules();
        library.published_as(modules.len());
        modules.push(library.description());
        // SAFETY: fresh memory of `fixed_len` bytes, which `drop` unmaps when nothing uses it any more. No hook uses
        // it.
        unsafe { adopt(&Region::new(region.cast(), geometry), modules.into_iter(), 1) };
        // SAFETY: zeroes are a valid `Memo` and a valid `Scratch`: in a target they are made of fresh shared memory.
        let (mut memo, scratch) = unsafe {
            (Box::<Memo>::new_zeroed().assume_init(), [(); 2].map(|()| Box::<Scratch>::new_zeroed().assume_init()))
        };
        memo.begin(is_large);
        let Some(bytes) = block.to_core_bytes(None) else { panic!("of another build") };
        // SAFETY: the bytes of a `Core`. The region and the gate that it names are mapped for as long as `Taken` lives.
        let core = Box::new(unsafe { bytes.as_ptr().cast::<Core>().read_unaligned() });
        let generation = core.modules().generation();
        Taken {
            core,
            region: region.cast(),
            _gate: gate,
            memo,
            proofs: Default::default(),
            scratch,
            generation,
            patched_together: 0,
            told: Vec::new(),
            seen: Seen::default(),
        }
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    pub fn forget(&mut self) {
        self.memo.forget();
    }

    /// Takes the stack of `context` in both ways and compares them. `returns` are the return addresses of the program's
    /// own calls, innermost first. `is_dropped`: there is no room for the event.
    pub fn compare(&mut self, context: &mut Context, returns: &[u64], is_dropped: bool) -> Result<(), String> {
        self.seen.samples += 1;
        let expected = self.plain(context);
        let Some(number) = self.remembered(context, is_dropped) else { return Ok(()) };
        let found = self.frames(number);
        let show = |frames: &[FrameKey]| frames.iter().map(|frame| format!(" {:x}", frame.0)).collect::<String>();
        if found != expected {
            return Err(format!("through the memo:{}\nby a plain walk: {}", show(&found), show(&expected)));
        }
        if expected.contains(&FrameKey::CUT) {
            self.seen.cut += 1;
            return Ok(());
        }
        let calls: Vec<FrameKey> = returns.iter().map(|address| self.key(*address)).collect();
        let mut rest = expected.iter();
        match calls.iter().find(|call| !rest.any(|frame| frame == *call)) {
            Some(missing) => {
                Err(format!("without {:x}\nwalked: {}\ncalled: {}", missing.0, show(&expected), show(&calls)))
            }
            None => Ok(()),
        }
    }

    fn key(&self, address: u64) -> FrameKey {
        let module = self.core.find_module(address - 1);
        module.map_or(FrameKey::new(0, address, false), |m| FrameKey::new(m.instance, address - m.bias, false))
    }

    /// Walks without a memo.
    fn plain(&mut self, context: &mut Context) -> Vec<FrameKey> {
        context.resume_state = ResumeState::NOTHING;
        let (scratch, proof) = (&mut *self.scratch[1], &mut self.proofs[1]);
        let mut walk = Walk { core: &self.core, scratch, proof, memo: None, may_ask: true };
        let found = walk.run(context);
        (0..found.path_len()).map(|i| walk.frame_key(&found, i)).collect()
    }

    /// Does the same as `remembered`, `remembered_elsewhere` and `walk_and_write` in `events/stacks.rs`.
    fn remembered(&mut self, context: &mut Context, is_dropped: bool) -> Option<StackId> {
        match self.known(context) {
            Ok(number) => Some(number),
            Err(miss) => {
                context.resume_state = ResumeState::of_miss(miss);
                self.walk(context, is_dropped)
            }
        }
    }

    fn known(&mut self, context: &Context) -> Result<StackId, Miss> {
        let generation = self.core.modules().generation();
        if self.generation != generation {
            self.memo.forget();
            self.generation = generation;
        }
        if self.memo.has_left_guesses(context.cfa()) {
            self.seen.left_guesses += 1;
            return Err(Miss::WALK_ANEW);
        }
        let place = FrameState { pc: context.ret, cfa: context.cfa(), rbp: context.rbp };
        // SAFETY: `context` is on the stack of a call that has not returned. The guesses and the generation were
        // checked above.
        let found = unsafe {
            match self.memo.find_youngest(place) {
                Ok(found) => {
                    self.seen.youngest += 1;
                    Ok(found)
                }
                Err(Miss::BROKEN) => Err(Miss::BROKEN),
                Err(miss) => {
                    let older = match miss {
                        Miss::UNSURE => self.memo.find(place, usize::MAX),
                        miss => self.memo.find_older(place, miss),
                    };
                    self.seen.older += older.is_ok() as u64;
                    older.map(|tail| (tail.number, tail.jumps))
                }
            }
        };
        match found {
            Ok((number, jumps)) if jumps <= FEW_JUMPS => Ok(number),
            Ok((number, _)) => {
                self.patched_together += 1;
                if self.patched_together < PATIENCE {
                    return Ok(number);
                }
                self.patched_together = 0;
                Err(Miss::WALK_ANEW)
            }
            Err(Miss::BROKEN) => panic!("the memo has a circle"),
            Err(miss) => Err(miss),
        }
    }

    fn walk(&mut self, context: &Context, is_dropped: bool) -> Option<StackId> {
        let (scratch, proof) = (&mut *self.scratch[0], &mut self.proofs[0]);
        let mut walk = Walk { core: &self.core, scratch, proof, memo: Some(&mut self.memo), may_ask: true };
        let found = walk.run(context);
        if is_dropped {
            return None;
        }
        let first = walk.memo.as_deref_mut().map_or(0, |memo| memo.number(found.numbers()));
        let count = found.path_len();
        let end = first as usize + found.numbers();
        if self.told.len() < end {
            self.told.resize(end, None);
        }
        for i in 0..count {
            let number = first + i as u32;
            let caller = if i + 1 == count { found.tail } else { number + 1 };
            self.told[number as usize] = Some((walk.frame_key(&found, i), caller));
        }
        self.seen.tails += (found.tail != 0) as u64;
        walk.remember(&found, first);
        Some(first)
    }

    /// Puts a stack together as the collector does.
    fn frames(&self, number: StackId) -> Vec<FrameKey> {
        let mut frames = Vec::new();
        let mut at = number;
        while let Some(Some((frame, caller))) = self.told.get(at as usize) {
            frames.push(*frame);
            at = *caller;
        }
        frames
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and only `core` leads to it, which is not used any more.
        unsafe { libc::munmap(self.region.cast(), Geometry::tight(WRITER_MEMORY).fixed_len()) };
    }
}

/// Describes the modules that are loaded in this process.
fn loaded_modules() -> Vec<Description<'static>> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: libc::size_t, list: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader passes a whole description, and the list that it was given.
        let (info, list) = unsafe { (&*info, &mut *list.cast::<Vec<Description<'static>>>()) };
        // SAFETY: the loader says that there are this many headers at this address. They stay as long as their module.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
        let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let frames = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
        let (Some(start), Some(end)) = (loads().map(|h| h.p_vaddr).min(), loads().map(|h| h.p_vaddr + h.p_memsz).max())
        else {
            return 0;
        };
        list.push(Description {
            map: ptr::from_ref(info) as u64,
            dynamic: 0,
            start: info.dlpi_addr + start,
            end: info.dlpi_addr + end,
            bias: info.dlpi_addr,
            eh_frame_hdr: frames.map_or(0, |header| info.dlpi_addr + header.p_vaddr),
            build_id: [0; channel::BUILD_ID_MAX / 8],
            build_id_len: 0,
            flags: 0,
            name: b"module",
        });
        0
    }
    let mut list: Vec<Description<'static>> = Vec::new();
    // SAFETY: `add` is called with the list, during the call only.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut list).cast()) };
    list
}
