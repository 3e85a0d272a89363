//! Tests of the memo, on stacks that are arrays of words.
use super::*;
use crate::proof::Range;

fn memo() -> Box<Memo> {
    let words = vec![0u64; size_of::<Memo>().div_ceil(8) + 8].into_boxed_slice();
    // SAFETY: zeroed words are a valid `Memo`; eight words more leave room to align it. Leaked, so they stay.
    let memo = unsafe {
        let at = Box::leak(words).as_mut_ptr() as usize;
        Box::from_raw(((at + 63) & !63) as *mut Memo)
    };
    let mut memo = std::mem::ManuallyDrop::new(memo);
    memo.begin(true);
    // SAFETY: taken only once. Every test forgets the box at its end, so it is dropped only if an assertion fails.
    unsafe { std::mem::ManuallyDrop::take(&mut memo) }
}

/// A fake stack: word `i` is the return address slot of frame `i`.
fn stack(pcs: &[u64]) -> Vec<u64> {
    pcs.to_vec()
}

fn place(stack: &[u64], i: usize) -> FrameState {
    FrameState { pc: stack[i], cfa: stack.as_ptr() as u64 + 8 * (i as u64 + 1), rbp: 7 }
}

fn fact(depth: u16) -> Fact {
    Fact { depth, needs_rbp: false, by_code: false, caller_slot: 0 }
}

fn remember(memo: &mut Memo, count: usize, tail: Option<u32>, frame: impl Fn(usize) -> (FrameState, Fact)) -> u32 {
    let first = memo.number(count);
    memo.remember(first, count, tail, frame);
    first
}

#[test]
fn a_walk_is_found_again_until_a_word_changes() {
    let mut memo = memo();
    let mut words = stack(&[0x1001, 0x1002, 0x1003]);
    let first = remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16)));
    // SAFETY: the places are in `words`.
    let tail = unsafe { memo.find(place(&words, 0), 99) };
    assert!(tail.is_ok_and(|t| t.number == first && t.depth == 3));
    words[2] = 0x9999;
    // SAFETY: the places are in `words`.
    let miss = unsafe { memo.find(place(&words, 0), 99) };
    assert_eq!(miss.err(), Some(Miss::differs_at(place(&words, 2).cfa)));
    std::mem::forget(memo);
}

#[test]
fn a_tail_is_shared_and_a_forgotten_memo_finds_nothing() {
    let mut memo = memo();
    let words = stack(&[0x1001, 0x1002, 0x1003, 0x1004]);
    remember(&mut memo, 2, None, |i| (place(&words, i + 2), fact(2 - i as u16)));
    // SAFETY: the places are in `words`.
    let tail = unsafe { memo.find(place(&words, 2), 99) }.map(|t| t.number).ok();
    assert!(tail.is_some());
    let first = remember(&mut memo, 2, tail, |i| (place(&words, i), fact(4 - i as u16)));
    // SAFETY: the places are in `words`.
    assert!(unsafe { memo.find(place(&words, 0), 99) }.is_ok_and(|t| t.number == first && t.depth == 4));
    memo.forget();
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(Miss::NO_WALK));
    std::mem::forget(memo);
}

/// One leaf with many different callers, as a helper function of an allocator has.
#[test]
fn as_many_stacks_of_one_place_are_known_as_a_set_has_ways() {
    let mut memo = memo();
    let mut words = stack(&[0x1001, 0, 0x1003]);
    let callers: Vec<u64> = (0..WAYS as u64).map(|caller| 0x2000 + caller).collect();
    let mut numbers = Vec::new();
    for caller in &callers {
        words[1] = *caller;
        numbers.push(remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16))));
    }
    for _ in 0..3 {
        for (caller, number) in callers.iter().zip(&numbers) {
            words[1] = *caller;
            // SAFETY: the places are in `words`.
            let youngest = unsafe { memo.find_youngest(place(&words, 0)) };
            // SAFETY: the places are in `words`.
            let found = youngest
                .map(|(number, _)| number)
                .or_else(|miss| unsafe { memo.find_older(place(&words, 0), miss) }.map(|tail| tail.number));
            assert_eq!(found.ok(), Some(*number), "{caller:x}");
        }
    }
    words[1] = 0x9999;
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find_youngest(place(&words, 0)) }.err(), Some(Miss::differs_at(place(&words, 1).cfa)));
    std::mem::forget(memo);
}

/// A short link to an older walk is stored as a distance in the node. A longer one is in `ways`, where only `find`
/// looks.
#[test]
fn an_older_walk_takes_over_at_any_distance_until_it_is_forgotten() {
    let other = stack(&[0x3001]);
    let words = stack(&[0x1001, 0x1002]);
    let kept = (NODES - SEGMENT) as u32 - 1;
    for (between, alive) in [(0, true), (1, true), (kept - 2, true), (kept - 1, false), (kept, false)] {
        let mut memo = memo();
        let tail = remember(&mut memo, 1, None, |_| (place(&words, 1), fact(1)));
        for _ in 0..between {
            remember(&mut memo, 1, None, |_| (place(&other, 0), fact(1)));
        }
        let first = remember(&mut memo, 1, Some(tail), |_| (place(&words, 0), fact(2)));
        // SAFETY: the places are in `words`.
        let quickly = unsafe { memo.find_youngest(place(&words, 0)) };
        let is_far = between as u64 + 1 >= BESIDE;
        assert_eq!(quickly.err() == Some(Miss::UNSURE), is_far, "{between}");
        assert!(is_far || quickly.ok() == Some((first, 1)), "{between}");
        // SAFETY: the places are in `words`.
        let found = unsafe { memo.find(place(&words, 0), usize::MAX) };
        assert_eq!(found.ok().map(|tail| (tail.number, tail.jumps)), alive.then_some((first, 1)), "{between}");
        std::mem::forget(memo);
    }
}

/// The arena is a ring. The caller of its last node is its first node, which is not the next one in memory.
#[test]
fn a_walk_across_the_end_of_the_arena_is_found_again() {
    let words = stack(&[0x1001, 0x1002, 0x1003, 0x1004]);
    for (is_large, nodes) in [(true, NODES), (false, SMALL_NODES)] {
        let mut memo = memo();
        memo.begin(is_large);
        // Numbers start at 1. The walk gets the last two nodes and the first two.
        memo.number(nodes - 3);
        let first = remember(&mut memo, 4, None, |i| (place(&words, i), fact(4 - i as u16)));
        assert_eq!(memo.place(first), nodes - 2);
        // SAFETY: the places are in `words`.
        let found = unsafe { memo.find(place(&words, 0), 99) };
        assert!(found.is_ok_and(|t| t.number == first && t.depth == 4), "{nodes} nodes");
        std::mem::forget(memo);
    }
}

/// The words at odd indices are return addresses. The word before each is the rbp in the frame of that return address.
#[test]
fn a_frame_pointer_that_changed_is_noticed() {
    let mut words = stack(&[0x71, 0x1001, 0x72, 0x1002, 0x73, 0x1003]);
    let frame = |words: &[u64], i: usize| {
        let fact =
            Fact { depth: 3 - i as u16, needs_rbp: i < 2, by_code: false, caller_slot: if i < 2 { 2 } else { 0 } };
        (FrameState { rbp: words[2 * i], ..place(words, 2 * i + 1) }, fact)
    };
    let mut memo = memo();
    let root = remember(&mut memo, 1, None, |_| frame(&words, 2));
    let two = remember(&mut memo, 2, Some(root), |i| frame(&words, i));
    let one = remember(&mut memo, 3, None, |i| (FrameState { pc: 0x1009, ..frame(&words, i).0 }, frame(&words, i).1));
    let leaf = |words: &[u64], pc| FrameState { pc, ..frame(words, 0).0 };
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find_youngest(leaf(&words, 0x1001)) }.ok(), Some((two, 1)));
    // SAFETY: the places are in `words`.
    let found = unsafe { memo.find_youngest(leaf(&words, 0x1009)) };
    assert_eq!(found.err(), Some(Miss::differs_at(frame(&words, 1).0.cfa)));
    words[3] = 0x1009;
    words[5] = 0x1009;
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find_youngest(leaf(&words, 0x1009)) }.ok(), Some((one, 0)));
    for (at, below) in [(2, 0), (4, 1)] {
        let right = std::mem::replace(&mut words[at], 0x99);
        // SAFETY: the places are in `words`.
        let found = unsafe { memo.find_youngest(leaf(&words, 0x1009)) };
        assert_eq!(found.err(), Some(Miss::differs_at(frame(&words, below).0.cfa)));
        words[at] = right;
    }
    // The leaf's own rbp is compared with the one that `find_youngest` is given.
    // SAFETY: the places are in `words`.
    let found = unsafe { memo.find_youngest(FrameState { rbp: 0x99, ..leaf(&words, 0x1009) }) };
    assert_eq!(found.err(), Some(Miss::NO_WALK));
    std::mem::forget(memo);
}

/// No code makes links that form a circle. If a bug did, a thread must not follow them for ever.
#[test]
fn a_circle_of_links_is_noticed() {
    let mut memo = memo();
    let words = stack(&[0x1001, 0x1002]);
    let first = memo.number(2);
    memo.remember(first, 1, Some(first + 1), |_| (place(&words, 0), fact(2)));
    memo.remember(first + 1, 1, Some(first), |_| (place(&words, 1), fact(1)));
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(Miss::BROKEN));
    assert_eq!(memo.top(first), place(&words, 1).cfa, "ends, too");
    std::mem::forget(memo);
}

#[test]
fn walks_with_guessed_frames_hold_only_on_their_own_stack() {
    let mut memo = memo();
    let words = stack(&[0x1001, 0x1002, 0x1003]);
    let FrameState { cfa, .. } = place(&words, 0);
    assert!(!memo.has_left_guesses(0) && !memo.has_left_guesses(u64::MAX - 1), "nothing was guessed yet");
    remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16)));
    let page = Range { low: cfa & !4095, high: (cfa & !4095) + 4096 };
    memo.move_guesses(page);
    assert!(!memo.has_left_guesses(cfa) && memo.has_left_guesses(page.low - 8) && memo.has_left_guesses(page.high));
    // A deeper call on the same stack.
    memo.move_guesses(Range { low: page.low - 4096, high: page.high });
    // SAFETY: the places are in `words`.
    assert!(unsafe { memo.find(place(&words, 0), 99) }.is_ok());
    // Another stack.
    memo.move_guesses(Range { low: page.high + 4096, high: page.high + 8192 });
    // SAFETY: the places are in `words`.
    assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(Miss::NO_WALK));
    assert!(!memo.has_left_guesses(0));
    std::mem::forget(memo);
}

#[test]
fn an_overwritten_tail_is_noticed() {
    let mut memo = memo();
    let words = stack(&[0x1001, 0x1002]);
    remember(&mut memo, 1, None, |_| (place(&words, 1), fact(1)));
    // SAFETY: the places are in `words`.
    let tail = unsafe { memo.find(place(&words, 1), 99) }.map(|t| t.number).ok();
    let other = stack(&[0x2001]);
    for _ in 0..NODES {
        remember(&mut memo, 1, None, |_| (place(&other, 0), fact(1)));
    }
    remember(&mut memo, 1, tail, |_| (place(&words, 0), fact(2)));
    // SAFETY: the places are in `words`.
    assert!(unsafe { memo.find(place(&words, 0), 99) }.is_err());
    std::mem::forget(memo);
}
