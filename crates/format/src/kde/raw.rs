//! The modules of a raw file: which file an address belongs to.
//!
//! Receives: `x` and `m` lines, and times. Returns: frames for addresses, and Modules blocks. A recorder writes all
//! modules again whenever one is loaded or unloaded. A module at the same place as before keeps its instance.
use super::line::Fields;
use crate::{Frame, Module, RawBlock};
use std::collections::HashMap;

const MOST_RANGES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Modules {
    /// The path of the program, which the list of modules does not contain.
    pub(crate) program: String,
    /// `(start, last, instance)` of the current list, sorted when it is used.
    ranges: Vec<(u64, u64, u16)>,
    is_sorted: bool,
    /// `(path, bias)` -> instance, over all lists.
    known: HashMap<(String, u64), u16>,
    /// By instance - 1.
    modules: Vec<Module>,
    is_listed: Vec<bool>,
    /// Instances that changed since the last block.
    changed: Vec<u16>,
}

impl Modules {
    /// A line `m 1 -`: a new list begins.
    pub(crate) fn begin(&mut self) {
        self.ranges.clear();
        self.is_listed.fill(false);
        self.is_sorted = false;
    }

    /// Returns false if the line is invalid.
    pub(crate) fn add(&mut self, name: &[u8], mut fields: Fields, now_ns: u64) -> bool {
        let Some(bias) = fields.number() else { return false };
        let path = if name == b"x" { self.program.clone() } else { String::from_utf8_lossy(name).into_owned() };
        let next = self.modules.len() as u16 + 1;
        if self.ranges.len() >= MOST_RANGES || next >= u16::MAX - 1 {
            return false;
        }
        let instance = *self.known.entry((path.clone(), bias)).or_insert(next);
        if instance == next {
            let module = Module { instance, bias, path, loaded_ns: now_ns, start: u64::MAX, ..Module::default() };
            self.modules.push(module);
            self.is_listed.push(true);
            self.changed.push(instance);
        }
        let place = instance as usize - 1;
        let (Some(module), Some(listed)) = (self.modules.get_mut(place), self.is_listed.get_mut(place)) else {
            return false;
        };
        *listed = true;
        if module.unloaded_ns.take().is_some() {
            self.changed.push(instance);
        }
        while let (Some(address), Some(size)) = (fields.number(), fields.number()) {
            let start = bias.wrapping_add(address);
            let last = start.saturating_add(size);
            module.start = module.start.min(start);
            module.end = module.end.max(last);
            self.ranges.push((start, last, instance));
        }
        self.is_sorted = false;
        true
    }

    /// Returns the frame of the instruction at `address`.
    pub(crate) fn frame(&mut self, address: u64, now_ns: u64) -> Frame {
        if !self.is_sorted {
            self.end_list(now_ns);
        }
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at)).filter(|range| address <= range.1);
        match range.and_then(|range| self.modules.get(range.2 as usize - 1)) {
            Some(module) => Frame::new(module.instance, address.wrapping_sub(module.bias), true),
            None => Frame::new(0, address, true),
        }
    }

    /// Modules that are not in the new list are unloaded.
    fn end_list(&mut self, now_ns: u64) {
        self.ranges.sort_unstable();
        self.is_sorted = true;
        for (module, listed) in self.modules.iter_mut().zip(&self.is_listed) {
            if !listed && module.unloaded_ns.is_none() {
                module.unloaded_ns = Some(now_ns);
                self.changed.push(module.instance);
            }
        }
    }

    pub(crate) fn take(&mut self, out: &mut impl FnMut(RawBlock)) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let modules: Vec<Module> =
            changed.iter().filter_map(|instance| self.modules.get(*instance as usize - 1).cloned()).collect();
        if !modules.is_empty() {
            out(Module::to_block(&modules));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_module_that_is_there_then() {
        let mut modules = Modules { program: "/bin/a".into(), ..Modules::default() };
        assert!(modules.add(b"x", Fields::new(b"1000 0 100 200 100"), 0));
        assert!(modules.add(b"/lib/b.so", Fields::new(b"9000 0 500"), 0));
        assert_eq!(modules.frame(0x1250, 0), Frame::new(1, 0x250, true));
        assert_eq!(modules.frame(0x1150, 0), Frame::new(0, 0x1150, true));
        assert_eq!(modules.frame(0x9500, 0), Frame::new(2, 0x500, true));
        modules.begin();
        assert!(modules.add(b"x", Fields::new(b"1000 0 100 200 100"), 7));
        assert!(modules.add(b"/lib/c.so", Fields::new(b"9000 0 500"), 7));
        assert_eq!(modules.frame(0x1250, 7), Frame::new(1, 0x250, true));
        assert_eq!(modules.frame(0x9500, 7), Frame::new(3, 0x500, true));
        assert_eq!(modules.modules.iter().map(|module| module.unloaded_ns).collect::<Vec<_>>(), [None, Some(7), None]);
        assert!(!modules.add(b"x", Fields::new(b"zz"), 0));
    }
}
