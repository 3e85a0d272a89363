//! The units of one DWARF file: finds the unit that covers an address, and the unit that contains an entry.
//!
//! Receives: the file's sections. Returns: units, each read at its first use. Must hold: if a unit that
//! `.debug_aranges` lists for an address has an answer, no other unit is read. If none of the listed units has one, the
//! beginning of every unlisted unit is read, once per file.
use crate::functions::{CodeRange, Functions, read};
use crate::lines::Lines;
use crate::part::Part;
use crate::store::Store;
use gimli::{Abbreviations, DebugInfoOffset, Dwarf, Section, UnitHeader, UnitRef, UnitType};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// No real file has more ranges. Further ones are ignored.
const MOST_RANGES: usize = 16 << 20;

pub(crate) struct Unit<'f> {
    pub(crate) unit: gimli::Unit<Part<'f>>,
    functions: OnceCell<Option<Functions>>,
    lines: OnceCell<Option<Lines>>,
    /// The split file that contains its entries (`.dwo`, `.dwp`).
    pub(crate) split: OnceCell<Option<Split<'f>>>,
}

pub(crate) struct Split<'f> {
    pub(crate) units: Units<'f>,
    pub(crate) unit: Rc<Unit<'f>>,
}

impl<'f> Unit<'f> {
    pub(crate) const fn new(unit: gimli::Unit<Part<'f>>) -> Self {
        Unit { unit, functions: OnceCell::new(), lines: OnceCell::new(), split: OnceCell::new() }
    }

    pub(crate) fn functions(&self, units: &Units<'f>) -> Option<&Functions> {
        let made = || Functions::new(units.with(self)).ok().inspect(|made| units.store.count(made.size()));
        self.functions.get_or_init(made).as_ref()
    }

    pub(crate) fn lines(&self, units: &Units<'f>) -> Option<&Lines> {
        let made = || Lines::new(units.with(self)).inspect(|made| units.store.count(made.size()));
        self.lines.get_or_init(made).as_ref()
    }
}

/// (range, offset of the unit), sorted by the start of the range.
#[derive(Default)]
struct Ranges {
    list: Vec<(gimli::Range, usize)>,
    /// The highest end of all ranges up to each one. It tells a search how far it must go back.
    ends: Vec<u64>,
}

impl Ranges {
    fn new(mut list: Vec<(gimli::Range, usize)>) -> Self {
        list.sort_by_key(|(range, unit)| (range.begin, *unit));
        let mut highest = 0;
        let end = |(range, _): &(gimli::Range, usize)| {
            highest = range.end.max(highest);
            highest
        };
        let ends = list.iter().map(end).collect();
        Ranges { list, ends }
    }

    /// Returns the offsets of the units that have a range that contains this address, the range that begins last first.
    fn find(&self, address: u64) -> Vec<usize> {
        let after = self.list.partition_point(|(range, _)| range.begin <= address);
        let mut found = Vec::new();
        for at in (0..after).rev() {
            if self.ends.get(at).is_none_or(|end| *end <= address) {
                break;
            }
            match self.list.get(at) {
                Some((range, unit)) if address < range.end && !found.contains(unit) => found.push(*unit),
                _ => {}
            }
        }
        found
    }
}

pub(crate) struct Units<'f> {
    store: &'f Store,
    pub(crate) dwarf: Dwarf<Part<'f>>,
    /// The ranges that `.debug_aranges` lists.
    listed: OnceCell<Ranges>,
    /// The ranges of all units that `.debug_aranges` does not list.
    unlisted: OnceCell<Ranges>,
    /// The offsets of units, as far as known.
    starts: RefCell<BTreeSet<usize>>,
    loaded: RefCell<BTreeMap<usize, Option<Rc<Unit<'f>>>>>,
    abbreviations: RefCell<HashMap<usize, Arc<Abbreviations>>>,
}

impl<'f> Units<'f> {
    pub(crate) fn new(store: &'f Store, dwarf: Dwarf<Part<'f>>) -> Self {
        Units {
            store,
            dwarf,
            listed: OnceCell::new(),
            unlisted: OnceCell::new(),
            starts: RefCell::default(),
            loaded: RefCell::default(),
            abbreviations: RefCell::default(),
        }
    }

    pub(crate) const fn with<'a>(&'a self, unit: &'a Unit<'f>) -> UnitRef<'a, Part<'f>> {
        UnitRef { dwarf: &self.dwarf, unit: &unit.unit }
    }

    /// Calls `ask` with each unit that has a range that contains the address, the listed ones first, and returns the
    /// first answer.
    pub(crate) fn find<T>(&self, address: u64, mut ask: impl FnMut(&Rc<Unit<'f>>) -> Option<T>) -> Option<T> {
        let mut ask_all = |ranges: &Ranges| {
            let units = ranges.find(address).into_iter();
            units.filter_map(|start| self.load(start)).find_map(|unit| ask(&unit))
        };
        ask_all(self.listed.get_or_init(|| self.list()))
            .or_else(|| ask_all(self.unlisted.get_or_init(|| self.look_for_unlisted())))
    }

    /// The end of the last unit that covers one of these addresses, taken from the start of the next known unit. `None`
    /// if an address is not listed, or if no unit is known after the last one.
    pub(crate) fn end_of(&self, addresses: &[u64]) -> Option<usize> {
        let listed = self.listed.get_or_init(|| self.list());
        let mut last = None;
        for address in addresses {
            last = last.max(Some(listed.find(*address).into_iter().max()?));
        }
        self.starts.borrow().range(last?.saturating_add(1)..).next().copied()
    }

    fn list(&self) -> Ranges {
        let mut list = Vec::new();
        let mut starts = self.starts.borrow_mut();
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let unit = header.debug_info_offset().0;
            let mut entries = header.entries();
            // After a malformed entry the next one may be valid.
            while let Some(entry) = entries.next().transpose() {
                if let Ok(entry) = entry
                    && entry.length() != 0
                    && entry.address() != 0
                    && list.len() < MOST_RANGES
                {
                    list.push((entry.range(), unit));
                    starts.insert(unit);
                }
            }
        }
        Ranges::new(list)
    }

    fn look_for_unlisted(&self) -> Ranges {
        let listed: BTreeSet<usize> =
            self.listed.get().map_or_else(BTreeSet::new, |ranges| ranges.list.iter().map(|(_, unit)| *unit).collect());
        let mut list = Vec::new();
        let mut next = Some(0);
        while let Some(start) = next
            && let Some(end) = self.end_at(start)
            && list.len() < MOST_RANGES
        {
            next = Some(end).filter(|end| *end > start);
            self.starts.borrow_mut().insert(start);
            if listed.contains(&start) {
                continue;
            }
            let Ok(header) = self.dwarf.unit_header(DebugInfoOffset(start)) else { break };
            let has_code = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
            if has_code && let Some(unit) = self.load(start) {
                self.ranges_of(&unit, |range| list.push((range, start)));
            }
        }
        Ranges::new(list)
    }

    /// The end of the unit that begins at `start`. Reads only its length, because most units are listed and not needed.
    fn end_at(&self, start: usize) -> Option<usize> {
        /// Announces that a 64-bit length follows.
        const DWARF64: u32 = u32::MAX;
        let info = self.dwarf.debug_info.reader();
        let after = match u32::from_le_bytes(info.peek(start)?) {
            DWARF64 => usize::try_from(u64::from_le_bytes(info.peek(start.checked_add(4)?)?)).ok()?.checked_add(12)?,
            length => length as usize + 4,
        };
        start.checked_add(after)
    }

    /// The ranges of a unit's code, from its attributes, or else from its line table.
    fn ranges_of(&self, unit: &Unit<'f>, mut give: impl FnMut(gimli::Range)) {
        let whole = self.with(unit);
        let mut place = CodeRange::default();
        if let Ok(mut entries) = whole.entries_raw(None)
            && let Ok(Some(abbreviation)) = entries.read_abbreviation()
        {
            let _ = read(&mut entries, abbreviation, |name, value| place.take(whole, name, value));
        }
        let mut any = false;
        place.each(whole, |range| {
            any = true;
            give(range);
            true
        });
        if !any && !place.has_list() {
            unit.lines(self).into_iter().flat_map(Lines::ranges).for_each(give);
        }
    }

    /// The unit that begins at this offset.
    pub(crate) fn load(&self, start: usize) -> Option<Rc<Unit<'f>>> {
        if let Some(known) = self.loaded.borrow().get(&start) {
            return known.clone();
        }
        let header = self.dwarf.unit_header(DebugInfoOffset(start)).ok();
        let unit = header.and_then(|header| self.parse(header)).map(|unit| Rc::new(Unit::new(unit)));
        self.loaded.borrow_mut().insert(start, unit.clone());
        unit
    }

    pub(crate) fn parse(&self, header: UnitHeader<Part<'f>>) -> Option<gimli::Unit<Part<'f>>> {
        let at = header.debug_abbrev_offset().0;
        let known = self.abbreviations.borrow().get(&at).cloned();
        let abbreviations = match known {
            Some(known) => known,
            None => {
                let read = self.dwarf.abbreviations(&header).ok()?;
                self.abbreviations.borrow_mut().insert(at, Arc::clone(&read));
                read
            }
        };
        gimli::Unit::new_with_abbreviations(&self.dwarf, header, abbreviations).ok()
    }

    /// The unit, of any kind, that contains the entry at `offset`, and the entry's offset in it.
    pub(crate) fn with_entry(&self, offset: usize) -> Option<(Rc<Unit<'f>>, gimli::UnitOffset<usize>)> {
        let mut start = self.starts.borrow().range(..=offset).next_back().copied().unwrap_or(0);
        loop {
            let header = self.dwarf.unit_header(DebugInfoOffset(start)).ok()?;
            self.starts.borrow_mut().insert(start);
            if let Some(entry) = DebugInfoOffset(offset).to_unit_offset(&header) {
                return Some((self.load(start)?, entry));
            }
            let next = start.checked_add(header.length_including_self())?;
            if next > offset || next <= start {
                return None;
            }
            start = next;
        }
    }
}
