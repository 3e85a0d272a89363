//! The stack of an event. It comes from the memo, or from a walk.
use super::entering::{AtWork, Entered};
use crate::context::Context;
use crate::core::{ACTIVE, CORE, Core};
use crate::local::Local;
use crate::memo::{FrameState, Memo, Miss};
use crate::walk::{Walk, check_stack};
use channel::{Check, Loss, PATH_HEAD_WORDS, StackId, Stamp, encode_path};

/// A jump goes from the memo's nodes of one walk to those of another. A stack that takes more jumps than `FEW_JUMPS` is
/// slow to compare. After `PATIENCE` such comparisons, the stack is walked again to the root. From then on its nodes
/// are neighbours.
const FEW_JUMPS: u32 = 1;
const PATIENCE: u32 = 64;

/// Returns the stack if the memo's first candidate for it still holds. Otherwise the miss is for
/// `remembered_elsewhere`.
///
/// # Safety
/// `local` is the calling thread's own, and the guard of its main level is up: no other hook uses its memo. `context`
/// is that of the hook for which the guard is up.
#[inline(always)]
pub(super) unsafe fn remembered(core: &Core, local: *mut Local, context: &Context) -> Result<StackId, Miss> {
    // SAFETY: these are the main hook's fields (see `Local`), and the caller promises that this hook is the main one.
    let (memo, generation) = unsafe { (&mut (*local).memo, &mut (*local).generation) };
    if *generation != core.modules().generation() {
        // A forked child leaves its parent's memo alone, see `fork.rs`.
        if core.gate() & ACTIVE == 0 {
            return Err(Miss::WALK_ANEW);
        }
        memo.forget();
        *generation = core.modules().generation();
    }
    core.header().require(Check::Modules, || core.modules().is_in_order());
    if memo.has_left_guesses(context.cfa()) {
        return Err(Miss::WALK_ANEW);
    }
    // SAFETY: `context` lies in the frame of the hook that is at work, so its caller is a frame of this thread that has
    // not returned. `has_left_guesses` was false, and walks of another generation were forgotten just now.
    let found = unsafe { memo.find_youngest(place(context)) };
    if let Ok((number, _)) = found {
        // SAFETY: the caller promises that `local` is the calling thread's own, and that the guard is up for `context`.
        unsafe { check_stack(core, local, context, number, 0) };
    }
    match found {
        Ok((number, jumps)) if jumps <= FEW_JUMPS => Ok(number),
        // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
        Ok((number, _)) => patched_together(unsafe { &mut (*local).patched_together }, number),
        Err(miss) => Err(miss),
    }
}

#[inline(always)]
fn place(context: &Context) -> FrameState {
    FrameState { pc: context.ret, cfa: context.cfa(), rbp: context.rbp }
}

/// Looks at the memo's other candidates, after `remembered` has failed with `miss`. The miss that it returns is for the
/// walk.
///
/// # Safety
/// What `remembered` asks for. `remembered` was called by the same hook, and failed with `miss`.
#[inline(never)]
pub(super) unsafe fn remembered_elsewhere(local: *mut Local, context: &Context, miss: Miss) -> Result<StackId, Miss> {
    // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
    let memo = unsafe { &mut (*local).memo };
    // SAFETY: `context` lies in the frame of the hook that is at work, so its caller is a frame of this thread that has
    // not returned. `remembered`, which failed before this, has checked the generation and the guesses. If it did not,
    // the miss is `WALK_ANEW`.
    let found = unsafe {
        match miss {
            Miss::WALK_ANEW => return Err(Miss::WALK_ANEW),
            Miss::BROKEN => Err(Miss::BROKEN),
            Miss::UNSURE => memo.find(place(context), usize::MAX),
            miss => memo.find_older(place(context), miss),
        }
    };
    if let Ok(tail) = found {
        // SAFETY: the caller promises that `local` is the calling thread's own, and that the guard is up for `context`.
        unsafe { check_stack(&CORE, local, context, tail.number, 0) };
    }
    match found {
        Ok(tail) if tail.jumps <= FEW_JUMPS => Ok(tail.number),
        // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
        Ok(tail) => patched_together(unsafe { &mut (*local).patched_together }, tail.number),
        // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
        Err(Miss::BROKEN) => Err(forget_broken(unsafe { &mut (*local).memo })),
        Err(miss) => Err(miss),
    }
}

/// Returns the stack of an entered hook if the memo knows it. Otherwise the miss is for the walk.
///
/// Every walk of the main level comes after this function or after `remembered`, which forgets the memo if the modules
/// have changed.
#[inline(always)]
pub(super) fn known_stack(core: &Core, entered: &Entered, context: &Context) -> Result<StackId, Miss> {
    if entered.nested {
        return Err(Miss::NO_WALK);
    }
    let local = entered.local;
    // SAFETY: an entered hook has the calling thread's own local, and (`nested` is false) the guard of its main level
    // is up.
    unsafe { remembered(core, local, context).or_else(|miss| remembered_elsewhere(local, context, miss)) }
}

/// Clears a memo that contradicts itself. The stack must be walked.
#[cold]
fn forget_broken(memo: &mut Memo) -> Miss {
    memo.forget();
    CORE.lose(Loss::MemoBroken);
    Miss::WALK_ANEW
}

/// Called for a known stack whose comparison took many jumps. Returns the stack. Every `PATIENCE`th time it returns
/// `WALK_ANEW` instead, so that the stack is walked again. `count` is the number of calls since that last happened.
#[inline(always)]
fn patched_together(count: &mut u32, number: StackId) -> Result<StackId, Miss> {
    *count += 1;
    if *count < PATIENCE {
        return Ok(number);
    }
    *count = 0;
    Err(Miss::WALK_ANEW)
}

/// Walks the stack. Writes the path of its new frames, and the words that `make` returns for the stamp and the stack,
/// in one commit. `count` events were begun. Returns false if there was no room, or if recording is over.
#[inline(never)]
pub(super) fn walk_and_write<const WORDS: usize>(
    core: &Core,
    entered: &mut Entered,
    context: &Context,
    count: u64,
    make: impl FnOnce(Stamp, StackId) -> [u64; WORDS],
) -> bool {
    // A forked child leaves its parent's memo alone, see `fork.rs`.
    if core.gate() & ACTIVE == 0 {
        entered.writer(core).drop_events(count, None);
        return false;
    }
    let local = entered.local;
    let may_ask = core.may_call();
    // SAFETY: the calling thread's own local (see `Local`). Hooks of the main level use the first proof and scratch
    // memory and the memo, nested ones the second of each and no memo, and the guard of this level is up for this hook.
    // `AtWork` gives out references to other fields.
    let mut walk = unsafe {
        let [scratch, inner_scratch] = &mut (*local).scratch;
        let [proof, inner_proof] = &mut (*local).proof;
        if entered.nested {
            Walk { core, scratch: inner_scratch, proof: inner_proof, memo: None, may_ask }
        } else {
            Walk { core, scratch, proof, memo: Some(&mut (*local).memo), may_ask }
        }
    };
    let found = walk.run(context);
    let frames = found.path_len();
    let mut writer = entered.writer(core);
    if !writer.has_room_or_drops(PATH_HEAD_WORDS + frames + WORDS, count) {
        return false;
    }
    let numbers = found.numbers();
    let first = walk.memo.as_deref_mut().map_or(1, |memo| memo.number(numbers));
    let mut at = writer.head();
    for word in encode_path(first, frames, found.tail) {
        writer.put(at, word);
        at += 1;
    }
    for i in 0..frames {
        writer.put(at, walk.frame_key(&found, i).0);
        at += 1;
    }
    // `remember` may make system calls. It runs before the commit, because after the commit another thread may forbid
    // them to all threads.
    if let Some(skip) = walk.remember(&found, first) {
        // SAFETY: only a walk of the main level has a memo to remember in, so the guard of that level is up for
        // `context`. `walk`, which has references to the fields that are checked, is not used again.
        unsafe { check_stack(core, local, context, first.wrapping_add(skip as u32), skip) };
    }
    writer.publish_intent();
    let stamp = writer.stamp();
    writer.commit(at, make(stamp, first), count);
    true
}
