//! A random program: calls, returns, jumps, exceptions, switches between stacks, and samples of its stack.
use super::functions::{self, Function, random_jump, random_mark, random_probe, random_switch};
use super::library::Library;
use super::random::Random;
use super::stacks::{Stacks, State};
use super::taken::{Seen, Taken};
use crate::context::Context;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    returns_to: u64,
    can_unwind: bool,
    is_library: bool,
}

/// A point to which a jump or an exception may go.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    /// How many calls were on the stack.
    calls: usize,
    /// What `random_mark` has stored. 0 = this handler catches exceptions.
    mark: u64,
}

/// What `step` does next.
enum Action {
    Return,
    Sample,
    SampleElsewhere,
    Call(Function),
    Mark,
    Jump(u64),
    Try,
    Throw,
    Switch(usize),
}

/// The unit by which the frames of `random_variable` differ. It is small, so that different frames often end at the
/// same address.
const FRAME_STEP: u64 = 16;

pub struct Program {
    random: Random,
    taken: Taken,
    library: Library,
    /// The functions that this program uses. The first `own` of them are not the library's.
    functions: Vec<Function>,
    own: usize,
    stacks: Stacks,
    current: usize,
    actions_left: u32,
    deepest: usize,
    failure: Option<String>,
}

/// Runs the program of a seed. The error says how the two walks differ, or which call they did not find.
pub fn run(seed: u64) -> Result<Seen, String> {
    let mut random = Random::new(seed);
    let mut library = Library::new();
    let taken = Taken::new(&mut library, random.one_in(2));
    // With few functions the same stacks come again and again. With many they differ.
    let is_deep = seed.is_multiple_of(100);
    let mut functions: Vec<Function> = functions::all().into_iter().filter(|f| f.is_small || !is_deep).collect();
    let count = 1 + random.below(functions.len() as u64) as usize;
    while functions.len() > count {
        functions.swap_remove(random.below(functions.len() as u64) as usize);
    }
    let own = functions.len();
    if random.one_in(2) {
        functions.extend(library.functions());
    }
    let deepest = if is_deep { 750 } else { [4, 10, 25][random.below(3) as usize] };
    let stacks = Stacks::new(1 + random.below(5) as usize, random.one_in(2));
    let actions_left = if is_deep { 900 } else { 600 };
    let program =
        Program { random, taken, library, functions, own, stacks, current: 0, actions_left, deepest, failure: None };
    let program = Box::into_raw(Box::new(program));
    // SAFETY: `program` is a box that stays until the end of this function. All code of the program runs on this
    // thread, and makes references to it only for as long as it calls nothing of the program.
    let program = unsafe {
        while (*program).actions_left > 0 && (*program).failure.is_none() {
            step(program);
        }
        Box::from_raw(program)
    };
    match program.failure {
        Some(failure) => Err(failure),
        None => Ok(program.taken.seen),
    }
}

/// Takes random actions, until one of them is to return.
///
/// # Safety
/// `program` is the one that `run` has made, and runs.
pub unsafe extern "C-unwind" fn step(program: *mut Program) {
    loop {
        // SAFETY: `run` keeps the program, and no reference to it is used meanwhile. Whatever is called here comes back
        // to this frame with the registers that it had: by a return, a jump, an exception, or a switch back.
        unsafe {
            match (*program).choose() {
                Action::Return => return,
                Action::Sample => random_probe(program),
                Action::SampleElsewhere => sample_elsewhere(program),
                Action::Call(function) => call(program, function),
                Action::Mark => mark(program),
                Action::Jump(mark) => random_jump(mark),
                Action::Try => catch(program),
                Action::Throw => resume_unwind(Box::new(())),
                Action::Switch(to) => switch(program, to),
            }
        }
    }
}

/// # Safety
/// As `step`.
#[inline(never)]
unsafe fn sample_elsewhere(program: *mut Program) {
    // SAFETY: the caller promises what `step` asks for.
    unsafe { random_probe(program) };
    std::hint::black_box(());
}

/// # Safety
/// As `step`.
#[inline(never)]
unsafe fn call(program: *mut Program, function: Function) {
    // SAFETY: the caller promises what `step` asks for, and each function does nothing but to call `step`.
    unsafe {
        let before = (*program).begin_call(function);
        (function.code)(program);
        (*program).back_to(before);
    }
}

/// # Safety
/// As `step`.
#[inline(never)]
unsafe fn mark(program: *mut Program) {
    // SAFETY: the caller promises what `step` asks for. `random_mark` writes the buffer before it calls anything, so
    // the list of handlers is as it was. No frame between here and a jump has anything to drop.
    unsafe {
        let before = (*program).begin_handler();
        random_mark((*program).last_mark(), program, step);
        (*program).back_to(before);
    }
}

/// # Safety
/// As `step`.
#[inline(never)]
unsafe fn catch(program: *mut Program) {
    // SAFETY: the caller promises what `step` asks for.
    unsafe {
        let before = (*program).begin_handler();
        let _ = catch_unwind(AssertUnwindSafe(|| step(program)));
        (*program).back_to(before);
    }
}

/// # Safety
/// As `step`. Coroutine `to` is suspended.
#[inline(never)]
unsafe fn switch(program: *mut Program, to: usize) {
    // SAFETY: the caller promises what `step` asks for. Coroutine `to` was left by a switch or made by `prepare`, so
    // its stack pointer leads to what `random_switch` takes off. That has stored ours before any other code runs.
    unsafe {
        let (from, to) = (*program).begin_switch(to);
        random_switch(from, to);
    }
}

/// The outermost function of a coroutine.
///
/// # Safety
/// As `step`.
pub unsafe extern "C-unwind" fn begin(program: *mut Program) -> ! {
    loop {
        // SAFETY: the caller promises what `step` asks for. A coroutine that has ended is not resumed.
        unsafe {
            step(program);
            if let Some(to) = (*program).end_coroutine() {
                let mut nowhere = 0;
                random_switch(&mut nowhere, to);
            }
        }
    }
}

/// Chooses the size of the next frame of `random_variable`, a multiple of 16.
///
/// # Safety
/// As `step`.
pub unsafe extern "C" fn amount(program: *mut Program) -> u64 {
    // SAFETY: the caller promises that it is whole, and nothing else uses it until this returns.
    unsafe { (*program).random.below(8) * FRAME_STEP }
}

/// Acts as a hook that was called with these registers.
///
/// # Safety
/// As `step`. `context` is what `random_probe` has made.
pub unsafe extern "C" fn sample(program: *mut Program, context: *mut Context) {
    // SAFETY: the caller promises that both are whole, and nothing else uses them until this returns.
    let (program, context) = unsafe { (&mut *program, &mut *context) };
    let calls = &program.stacks.coroutines[program.current].calls;
    let returns: Vec<u64> = calls.iter().rev().map(|call| call.returns_to).collect();
    let is_dropped = program.random.one_in(40);
    if let Err(why) = program.taken.compare(context, &returns, is_dropped) {
        program.failure = Some(why);
    }
}

impl Program {
    fn choose(&mut self) -> Action {
        if self.actions_left == 0 || self.failure.is_some() {
            return Action::Return;
        }
        self.actions_left -= 1;
        let coroutine = &self.stacks.coroutines[self.current];
        let depth = coroutine.calls.len();
        let may_call = depth < self.deepest && (self.current == 0 || depth < 25);
        if self.deepest > 100 && self.current == 0 && may_call && !self.random.one_in(64) {
            return Action::Call(self.function());
        }
        // Handlers have frames too, so their number is limited.
        let may_handle = coroutine.handlers.len() < 10;
        match self.random.below(32) {
            0..=9 if may_call => Action::Call(self.function()),
            0..=14 => Action::Sample,
            15..=17 => Action::SampleElsewhere,
            18..=22 => Action::Return,
            23 if may_handle => Action::Mark,
            24 if may_handle => Action::Try,
            25 => self.jump().unwrap_or(Action::Sample),
            26 => self.throw().unwrap_or(Action::Sample),
            27 | 28 => self.switch().unwrap_or(Action::Sample),
            29 => {
                self.end_some_coroutine();
                Action::Sample
            }
            30 => {
                self.replace_library();
                Action::Sample
            }
            _ if self.random.one_in(8) => {
                // As after a jump has left a hook.
                self.taken.forget();
                Action::Sample
            }
            _ => Action::Sample,
        }
    }

    fn function(&mut self) -> Function {
        let function = self.functions[self.random.below(self.functions.len() as u64) as usize];
        // Many of these on a deep stack would take minutes.
        let is_too_slow = function.is_complex && self.deepest > 100 && !self.random.one_in(32);
        if is_too_slow { self.functions[0] } else { function }
    }

    fn begin_call(&mut self, function: Function) -> (usize, usize) {
        let before = self.here();
        let is_library = self.functions[self.own..].iter().any(|f| f.returns_to == function.returns_to);
        let call = Call { returns_to: function.returns_to, can_unwind: function.can_unwind, is_library };
        self.stacks.coroutines[self.current].calls.push(call);
        before
    }

    fn begin_handler(&mut self) -> (usize, usize) {
        let before = self.here();
        self.stacks.coroutines[self.current].handlers.push(Handler { calls: before.0, mark: 0 });
        before
    }

    fn last_mark(&mut self) -> *mut u64 {
        let last = self.stacks.coroutines[self.current].handlers.last_mut();
        last.map_or(std::ptr::null_mut(), |handler| &raw mut handler.mark)
    }

    fn here(&self) -> (usize, usize) {
        let coroutine = &self.stacks.coroutines[self.current];
        (coroutine.calls.len(), coroutine.handlers.len())
    }

    fn back_to(&mut self, (calls, handlers): (usize, usize)) {
        let coroutine = &mut self.stacks.coroutines[self.current];
        coroutine.calls.truncate(calls);
        coroutine.handlers.truncate(handlers);
    }

    fn jump(&mut self) -> Option<Action> {
        let coroutine = &self.stacks.coroutines[self.current];
        let marks: Vec<usize> = (0..coroutine.handlers.len()).filter(|&i| coroutine.handlers[i].mark != 0).collect();
        if marks.is_empty() {
            return None;
        }
        let at = marks[self.random.below(marks.len() as u64) as usize];
        let handler = self.stacks.coroutines[self.current].handlers[at];
        self.back_to((handler.calls, at));
        self.taken.seen.jumps += 1;
        Some(Action::Jump(handler.mark))
    }

    /// Throws an exception, if the system's unwinder has CFI for all frames on the way.
    fn throw(&mut self) -> Option<Action> {
        let coroutine = &self.stacks.coroutines[self.current];
        let handler = coroutine.handlers.iter().rev().find(|handler| handler.mark == 0)?;
        let can_unwind = coroutine.calls[handler.calls..].iter().all(|call| call.can_unwind);
        self.taken.seen.exceptions += can_unwind as u64;
        can_unwind.then_some(Action::Throw)
    }

    fn switch(&mut self) -> Option<Action> {
        let count = self.stacks.coroutines.len();
        let to = (self.current + 1 + self.random.below((count as u64 - 1).max(1)) as usize) % count;
        (to != self.current).then_some(Action::Switch(to))
    }

    /// Returns where to store the stack pointer, and the new stack pointer.
    fn begin_switch(&mut self, to: usize) -> (*mut u64, u64) {
        let program: *mut Program = self;
        if self.stacks.coroutines[to].state == State::Unmapped {
            self.stacks.map(to);
        }
        if self.stacks.coroutines[to].state == State::Idle {
            self.stacks.prepare(to, program, &mut self.random);
        }
        self.taken.seen.switches += 1;
        let from = std::mem::replace(&mut self.current, to);
        self.stacks.coroutines[to].state = State::Running;
        let to = self.stacks.coroutines[to].stack_pointer;
        self.stacks.coroutines[from].state = State::Suspended;
        (&raw mut self.stacks.coroutines[from].stack_pointer, to)
    }

    /// Ends the running coroutine: always at the end of the program, otherwise at random. If it ends, returns the stack
    /// pointer of coroutine 0, which continues.
    fn end_coroutine(&mut self) -> Option<u64> {
        let is_over = self.actions_left == 0 || self.failure.is_some();
        if !is_over && !self.random.one_in(3) {
            return None;
        }
        self.stacks.end(self.current, State::Idle);
        self.current = 0;
        self.stacks.coroutines[0].state = State::Running;
        Some(self.stacks.coroutines[0].stack_pointer)
    }

    /// Ends a random coroutine that is neither the first nor the running one. Its memory is unmapped, or stays.
    fn end_some_coroutine(&mut self) {
        let index = self.random.below(self.stacks.coroutines.len() as u64) as usize;
        let is_mapped = self.stacks.coroutines[index].state != State::Unmapped;
        if index == 0 || index == self.current || !is_mapped {
            return;
        }
        if self.random.one_in(2) {
            self.stacks.unmap(index);
            self.taken.seen.unmapped += 1;
        } else {
            self.stacks.end(index, State::Idle);
        }
    }

    fn replace_library(&mut self) {
        let mut calls = self.stacks.coroutines.iter().flat_map(|coroutine| &coroutine.calls);
        if !calls.any(|call| call.is_library) {
            let frame = [8, 24, 40][self.random.below(3) as usize];
            self.library.replace(self.taken.core(), frame);
            self.taken.seen.replaced += 1;
        }
    }
}
