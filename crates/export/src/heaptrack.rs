//! KDE's own format, version 3, as `heaptrack_interpret` writes it: what KDE's tools open.
//!
//! Receives: a trace, twice (names may come after the events that need them). Returns: text. Must hold, because KDE's
//! readers fail or crash otherwise: strings come before pointers, pointers before traces, traces before allocation
//! classes, allocation classes before events; allocation classes are numbered by their first use, without gaps; a free
//! names an allocation class that is defined; times never go back.
//!
//! ```text
//! v X I S A                                 version, command, system, suppressions, "attached"
//! s (string)  i (pointer)  t (trace)  a     definitions, just before their first use
//! + -                                       an allocation, a free: the number of an allocation class
//! c R                                       milliseconds, pages that are resident
//! ```
use crate::definitions::{Definitions, LOST_ALLOC_CLASS};
use crate::hex::{line, one_line, put};
use crate::{Error, Opener};
use format::{BlockKind, Event, Events, Frame, Freed, IntMap, IntSet, LiveBlocks, Module};
use std::io::Write;

/// The two numbers of the line `v`: a version of KDE's heaptrack (1.3.0), because the line must have one, and the
/// number of the format.
const VERSION: &[u64] = &[0x1_0300, 3];
const NONE: u32 = u32::MAX;
const MS: u64 = 1_000_000;
/// The interval at which KDE's recorder writes the time. Without a memory sample, we do not write it more often.
const EVERY_MS: u64 = 10;
const BUFFER: usize = 64 << 10;

/// The number of allocations that were written, and what KDE's format cannot express or expresses in another way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub allocations: u64,
    /// Blocks that were live at an `exec`. KDE's format has no exec, so they are freed there.
    pub ended_by_exec: u64,
    /// Blocks that one of several processes leaked. KDE's format has one process, so they are freed when theirs ended.
    pub ended_with_process: u64,
    /// Frees of unknown blocks, which KDE's format does not have.
    pub unknown_frees: u64,
    /// Events that refer to lost parts of the file.
    pub damaged: u64,
    /// Events that the trace has only as sums.
    pub folded: u64,
}

/// `threads`: those whose blocks are wanted; `None` means all.
pub fn write(open: Opener, threads: Option<&IntSet<u32>>, out: &mut dyn Write) -> Result<Written, Error> {
    let definitions = Definitions::read(open()?)?;
    let mut writer = Writer::new(definitions, threads, out);
    writer.head();
    let mut source = open()?;
    source.skip(&BlockKind::NOT_EVENTS);
    while let Some(block) = source.next_block()? {
        let Ok(mut events) = block.events() else { continue };
        writer.events(&mut events)?;
    }
    writer.end()
}

struct Writer<'a> {
    definitions: Definitions,
    threads: Option<&'a IntSet<u32>>,
    /// The thread of the current event is wanted.
    is_wanted: bool,
    out: &'a mut dyn Write,
    text: Vec<u8>,
    /// Our numbers -> KDE's; `NONE` if it is not written yet.
    strings: Vec<u32>,
    traces: Vec<u32>,
    alloc_classes: Vec<u32>,
    pointers: IntMap<u64, u32>,
    next_string: u32,
    next_trace: u32,
    next_alloc_class: u32,
    /// Sequence number -> KDE's allocation class.
    live: LiveBlocks<u32>,
    image: u32,
    now_ms: u64,
    /// The index of the next sample to write.
    sample: usize,
    written: Written,
}

impl<'a> Writer<'a> {
    fn new(definitions: Definitions, threads: Option<&'a IntSet<u32>>, out: &'a mut dyn Write) -> Self {
        Writer {
            written: Written {
                folded: definitions.folded_events,
                ended_with_process: definitions.gone_at_end,
                ended_by_exec: definitions.gone_by_exec,
                ..Written::default()
            },
            strings: vec![NONE; definitions.strings.len()],
            traces: vec![NONE; definitions.nodes.len()],
            alloc_classes: vec![NONE; definitions.alloc_classes.len()],
            definitions,
            threads,
            is_wanted: true,
            out,
            text: Vec::with_capacity(2 * BUFFER),
            pointers: IntMap::default(),
            next_string: 1,
            next_trace: 1,
            next_alloc_class: 0,
            live: LiveBlocks::default(),
            image: 0,
            now_ms: 0,
            sample: 0,
        }
    }

    fn head(&mut self) {
        let session = &self.definitions.session;
        let page = (session.page_size as u64).max(1);
        line(&mut self.text, b'v', VERSION);
        self.text.extend_from_slice(b"X ");
        self.text.extend_from_slice(one_line(&session.command.join(" ")).as_bytes());
        self.text.push(b'\n');
        line(&mut self.text, b'I', &[page, session.system_memory / page]);
        // Without the length that format 3 would have in front: KDE's readers do not expect it and would reject the
        // line.
        for suppression in self.definitions.suppressions.lines().filter(|line| !line.trim().is_empty()) {
            self.text.extend_from_slice(b"S ");
            self.text.extend_from_slice(suppression.trim().as_bytes());
            self.text.push(b'\n');
        }
        if session.attached {
            self.text.extend_from_slice(b"A\n");
        }
    }

    fn events(&mut self, events: &mut Events) -> Result<(), Error> {
        self.time(events.time_ns());
        self.image(events.image());
        self.thread(events.thread());
        // The rest of a malformed block is lost, as for every other reader.
        while let Ok(Some(event)) = events.read() {
            match event {
                Event::Alloc { sequence, alloc_class } => self.alloc(sequence, alloc_class),
                Event::Free { sequence, how } => self.free(sequence, how),
                Event::UnknownFree => self.written.unknown_frees += self.is_wanted as u64,
                Event::Thread(thread) => self.thread(thread),
                Event::Time(ns) => self.time(ns),
                Event::Image(image) => self.image(image),
                Event::Release { .. } | Event::LatestGone => (),
            }
            if self.text.len() >= BUFFER {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    fn thread(&mut self, thread: u32) {
        self.is_wanted = self.threads.is_none_or(|threads| threads.contains(&thread));
    }

    fn alloc(&mut self, sequence: u64, alloc_class: u32) {
        if !self.is_wanted {
            return;
        }
        let Some(alloc_class) = self.alloc_class(alloc_class) else {
            self.written.damaged += 1;
            return;
        };
        // In a malformed file the number may be live already.
        if !self.live.insert(sequence, alloc_class) {
            self.written.damaged += 1;
            return;
        }
        self.written.allocations += 1;
        line(&mut self.text, b'+', &[alloc_class as u64]);
    }

    fn free(&mut self, sequence: u64, how: Freed) {
        let Some(alloc_class) = self.live.remove(sequence) else {
            // Blocks of other threads are not live here.
            self.written.damaged += self.threads.is_none() as u64;
            return;
        };
        line(&mut self.text, b'-', &[alloc_class as u64]);
        match how {
            Freed::Leaked => self.written.ended_with_process += 1,
            Freed::Replaced => self.written.ended_by_exec += 1,
            Freed::Call | Freed::Realloc | Freed::Implied | Freed::Dropped => (),
        }
    }

    #[inline]
    fn alloc_class(&mut self, alloc_class: u32) -> Option<u32> {
        match *self.alloc_classes.get(alloc_class as usize)? {
            NONE => self.new_alloc_class(alloc_class),
            known => Some(known),
        }
    }

    fn new_alloc_class(&mut self, alloc_class: u32) -> Option<u32> {
        let known = self
            .definitions
            .alloc_classes
            .get(alloc_class as usize)
            .copied()
            .filter(|known| *known != LOST_ALLOC_CLASS)?;
        let trace = self.trace(known.stack);
        line(&mut self.text, b'a', &[known.size, trace as u64]);
        let number = self.next_alloc_class;
        self.next_alloc_class += 1;
        *self.alloc_classes.get_mut(alloc_class as usize)? = number;
        Some(number)
    }

    /// Writes the nodes of the stack that are not written yet, outermost first. Returns KDE's number of the stack.
    fn trace(&mut self, stack: u32) -> u32 {
        let mut new = Vec::new();
        let mut parent = 0;
        let mut at = stack;
        while let Some(node) = self.definitions.node(at) {
            match self.traces.get(at as usize - 1) {
                Some(&NONE) => new.push((at, node.frame)),
                Some(known) => {
                    parent = *known;
                    break;
                }
                None => break,
            }
            // A parent has a smaller id than its child. Anything else is invalid and ends the walk.
            at = if node.parent < at { node.parent } else { 0 };
        }
        for (stack, frame) in new.into_iter().rev() {
            let pointer = self.pointer(frame);
            line(&mut self.text, b't', &[pointer as u64, parent as u64]);
            parent = self.next_trace;
            self.next_trace += 1;
            if let Some(trace) = self.traces.get_mut(stack as usize - 1) {
                *trace = parent;
            }
        }
        parent
    }

    fn pointer(&mut self, frame: Frame) -> u32 {
        if let Some(known) = self.pointers.get(&frame.0) {
            return *known;
        }
        let module = self.definitions.modules.get(&frame.instance()).filter(|_| !frame.is_marker() && !frame.is_jit());
        let address = address(frame, module);
        let path = module.map(|module| module.path.clone());
        let path = path.filter(|path| !path.is_empty()).map_or(0, |path| {
            let number = self.definitions.string(&path);
            self.string(number)
        });
        let mut numbers = vec![address, path as u64];
        if let Some(marker) = marker(frame) {
            let number = self.definitions.string(marker);
            numbers.push(self.string(number) as u64);
        } else {
            self.places(frame, &mut numbers);
        }
        line(&mut self.text, b'i', &numbers);
        let number = self.pointers.len() as u32 + 1;
        self.pointers.insert(frame.0, number);
        number
    }

    /// Adds function, file and line of every place that is known.
    fn places(&mut self, frame: Frame, numbers: &mut Vec<u64>) {
        let places = self.definitions.places.get(&frame.0).cloned().unwrap_or_default();
        for place in &places {
            let mut string = |number: Option<u32>| number.map_or(0, |number| self.string(number)) as u64;
            numbers.extend([string(place.function), string(place.file), place.line as u64]);
        }
        if let [place] = places[..]
            && place.file.is_none()
        {
            numbers.truncate(if place.function.is_some() { 3 } else { 2 });
        }
    }

    /// Returns KDE's number of one of our strings.
    fn string(&mut self, number: u32) -> u32 {
        if self.strings.len() < self.definitions.strings.len() {
            self.strings.resize(self.definitions.strings.len(), NONE);
        }
        let (Some(known), Some(text)) =
            (self.strings.get_mut(number as usize), self.definitions.strings.get(number as usize))
        else {
            return 0;
        };
        if *known == NONE {
            let text = one_line(text);
            self.text.push(b's');
            put(&mut self.text, text.len() as u64);
            self.text.push(b' ');
            self.text.extend_from_slice(text.as_bytes());
            self.text.push(b'\n');
            *known = self.next_string;
            self.next_string += 1;
        }
        *known
    }

    fn time(&mut self, ns: u64) {
        self.samples_until(ns);
        if ns / MS >= self.now_ms + EVERY_MS {
            self.clock(ns / MS);
        }
    }

    fn samples_until(&mut self, ns: u64) {
        while let Some(sample) = self.definitions.samples.get(self.sample).filter(|sample| sample.time_ns <= ns) {
            let (at, rss) = (sample.time_ns / MS, sample.rss_bytes);
            self.sample += 1;
            self.clock(at);
            self.resident(rss);
        }
    }

    fn clock(&mut self, ms: u64) {
        if ms > self.now_ms {
            self.now_ms = ms;
            line(&mut self.text, b'c', &[ms]);
        }
    }

    fn resident(&mut self, bytes: u64) {
        let page = (self.definitions.session.page_size as u64).max(1);
        line(&mut self.text, b'R', &[bytes.div_ceil(page)]);
    }

    /// Frees all blocks if the image differs from the current one. An `exec` removed them, and KDE's format has no
    /// event for that.
    fn image(&mut self, image: u32) {
        if image == self.image {
            return;
        }
        self.image = image;
        let (text, ended) = (&mut self.text, &mut self.written.ended_by_exec);
        self.live.each_from(0, |_, alloc_class| {
            *ended += 1;
            line(text, b'-', &[alloc_class as u64]);
        });
        self.live.clear(0);
    }

    fn end(mut self) -> Result<Written, Error> {
        self.samples_until(u64::MAX);
        let totals = self.definitions.summary.map(|summary| summary.totals).unwrap_or_default();
        // KDE's readers take the last time plus one millisecond for the run time, so write one millisecond less.
        self.clock((totals.runtime_ns / MS).saturating_sub(1));
        let sampled = self.definitions.samples.iter().map(|sample| sample.rss_bytes).max().unwrap_or(0);
        if totals.peak_rss_bytes > sampled {
            self.resident(totals.peak_rss_bytes);
        }
        let (strings, pointers) = (self.next_string - 1, self.pointers.len());
        self.text.extend_from_slice(format!("\n# strings: {strings}\n# ips: {pointers}\n").as_bytes());
        self.flush()?;
        Ok(self.written)
    }
}

/// The address in the target: that of the call instruction, not the return address after it.
fn address(frame: Frame, module: Option<&Module>) -> u64 {
    if frame.is_marker() {
        return 0;
    }
    let address = frame.offset().wrapping_add(module.map_or(0, |module| module.bias));
    address.wrapping_sub(!frame.is_exact() as u64)
}

/// The text that replaces missing frames.
fn marker(frame: Frame) -> Option<&'static str> {
    match frame {
        Frame::CUT => Some("[frames left out]"),
        frame if frame.is_marker() => Some("[damaged]"),
        _ => None,
    }
}
