//! The functions of one unit, and the functions that were inlined into them.
//!
//! Must hold: entries are visited without recursion, so no nesting is too deep. The data of one function is bounded.
//! Names are looked up only for functions at a requested address.
use crate::part::Part;
use gimli::{AttributeValue, DwAt, EntriesRaw, UnitRef};
use std::cell::OnceCell;

pub(crate) type Offset = gimli::UnitOffset<usize>;
pub(crate) type Value<'f> = AttributeValue<Part<'f>>;

/// No real unit has more ranges of functions, and no real function more ranges of inlined code. Further ones are
/// ignored.
const MOST_SPANS: usize = 1 << 20;
/// No real inlining is deeper. If it is, no inlined function is returned.
const MOST_INLINED: usize = 256;
/// In malformed files, functions may overlap. A search looks at the last ranges that begin at or before the address, at
/// most at this many.
const LOOK_BACK: usize = 16;

pub(crate) struct Functions {
    functions: Vec<Function>,
    /// Sorted by start. The number is an index into `functions`.
    ranges: Vec<(gimli::Range, u32)>,
}

pub(crate) struct Function {
    pub(crate) offset: Offset,
    inlined: OnceCell<Spans>,
}

/// In the order of the entries: a function that is inlined into another one comes after it.
#[derive(Default)]
struct Spans {
    inlined: Vec<Inlined>,
    spans: Vec<(gimli::Range, u32)>,
}

#[derive(Clone, Copy)]
pub(crate) struct Inlined {
    pub(crate) offset: Offset,
    pub(crate) call_file: Option<u64>,
    pub(crate) call_line: Option<u32>,
    /// How many other inlined functions it is inside of.
    depth: usize,
}

impl Functions {
    pub(crate) fn new(unit: UnitRef<'_, Part<'_>>) -> gimli::Result<Self> {
        let (mut functions, mut ranges) = (Vec::new(), Vec::new());
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut place = CodeRange::default();
            read(&mut entries, abbreviation, |name, value| place.take(unit, name, value))?;
            let number = functions.len() as u32;
            let before = ranges.len();
            place.each(unit, |range| {
                ranges.push((range, number));
                ranges.len() < MOST_SPANS
            });
            if ranges.len() > before {
                functions.push(Function { offset, inlined: OnceCell::new() });
            }
        }
        ranges.sort_by_key(|(range, number)| (range.begin, *number));
        Ok(Functions { functions, ranges })
    }

    /// Bytes of memory, without inlined functions.
    pub(crate) const fn size(&self) -> usize {
        self.functions.len() * size_of::<Function>() + self.ranges.len() * size_of::<(gimli::Range, u32)>()
    }

    pub(crate) fn find(&self, address: u64) -> Option<&Function> {
        let after = self.ranges.partition_point(|(range, _)| range.begin <= address);
        let near = self.ranges.get(after.saturating_sub(LOOK_BACK)..after)?;
        let (_, number) = near.iter().rev().find(|(range, _)| address < range.end)?;
        self.functions.get(*number as usize)
    }
}

impl Function {
    /// The functions that are inlined at an address, the outermost first.
    pub(crate) fn inlined(&self, unit: UnitRef<'_, Part<'_>>, address: u64) -> Vec<Inlined> {
        let known = self.inlined.get_or_init(|| {
            let mut spans = Spans::default();
            // The entries before an error are still valid.
            let _ = spans.read(unit, self.offset);
            spans
        });
        let mut chain: Vec<Inlined> = Vec::new();
        for (_, number) in known.spans.iter().filter(|(range, _)| range.begin <= address && address < range.end) {
            if let Some(inlined) = known.inlined.get(*number as usize)
                && inlined.depth == chain.len()
            {
                chain.push(*inlined);
            }
        }
        if chain.len() > MOST_INLINED {
            chain.clear();
        }
        chain
    }
}

impl Spans {
    fn read(&mut self, unit: UnitRef<'_, Part<'_>>, offset: Offset) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(Some(offset))?;
        let top = entries.next_depth();
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
        // The depths of the inlined functions around the current entry.
        let mut inside: Vec<isize> = Vec::new();
        while entries.next_depth() > top && !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while inside.last().is_some_and(|outer| *outer >= depth) {
                inside.pop();
            }
            match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine => {
                    self.add(unit, offset, inside.len(), &mut entries, abbreviation)?;
                    inside.push(depth);
                }
                // A separate function, such as a method of a class inside the function.
                gimli::DW_TAG_subprogram => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    skip_children(&mut entries, depth)?;
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
            if self.spans.len() >= MOST_SPANS {
                break;
            }
        }
        Ok(())
    }

    /// Adds an inlined function whose abbreviation was just read. `depth`: how many others it is inside of.
    fn add<'f>(
        &mut self,
        unit: UnitRef<'_, Part<'f>>,
        offset: Offset,
        depth: usize,
        entries: &mut EntriesRaw<'_, Part<'f>>,
        abbreviation: &gimli::Abbreviation,
    ) -> gimli::Result<()> {
        let mut place = CodeRange::default();
        let (mut call_file, mut call_line) = (None, None);
        let version = unit.header.version();
        read(entries, abbreviation, |name, value| match (name, &value) {
            // Before DWARF 5 there was no file 0.
            (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) => {
                call_file = Some(*file).filter(|file| *file > 0 || version >= 5);
            }
            (gimli::DW_AT_call_line, _) => {
                call_line = value.udata_value().and_then(|line| u32::try_from(line).ok());
            }
            _ => place.take(unit, name, value),
        })?;
        let number = self.inlined.len() as u32;
        self.inlined.push(Inlined { offset, call_file, call_line, depth });
        place.each(unit, |range| {
            self.spans.push((range, number));
            self.spans.len() < MOST_SPANS
        });
        Ok(())
    }
}

fn skip_children(entries: &mut EntriesRaw<'_, Part<'_>>, depth: isize) -> gimli::Result<()> {
    while entries.next_depth() > depth && !entries.is_empty() {
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
    }
    Ok(())
}

/// Reads the attributes of an entry whose abbreviation was just read.
pub(crate) fn read<'f>(
    entries: &mut EntriesRaw<'_, Part<'f>>,
    abbreviation: &gimli::Abbreviation,
    mut take: impl FnMut(DwAt, Value<'f>),
) -> gimli::Result<()> {
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        take(attribute.name(), attribute.value());
    }
    Ok(())
}

/// Where the code of an entry is, according to its attributes.
#[derive(Default)]
pub(crate) struct CodeRange {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<gimli::RangeListsOffset<usize>>,
}

impl CodeRange {
    pub(crate) fn take<'f>(&mut self, unit: UnitRef<'_, Part<'f>>, name: DwAt, value: Value<'f>) {
        match (name, value) {
            (gimli::DW_AT_low_pc, value) => self.low = unit.attr_address(value).ok().flatten(),
            (gimli::DW_AT_high_pc, AttributeValue::Udata(size)) => self.size = Some(size),
            (gimli::DW_AT_high_pc, value) => self.high = unit.attr_address(value).ok().flatten(),
            (gimli::DW_AT_ranges, value) => self.list = unit.attr_ranges_offset(value).ok().flatten(),
            _ => {}
        }
    }

    pub(crate) const fn has_list(&self) -> bool {
        self.list.is_some()
    }

    /// Calls `give` with each range, until it returns false.
    pub(crate) fn each(&self, unit: UnitRef<'_, Part<'_>>, mut give: impl FnMut(gimli::Range) -> bool) {
        // The linker leaves functions that it removed at address 0.
        let fits = |range: &gimli::Range| range.begin != 0 && range.begin < range.end;
        if let Some(list) = self.list {
            let Ok(mut ranges) = unit.ranges(list) else { return };
            while let Ok(Some(range)) = ranges.next() {
                if fits(&range) && !give(range) {
                    return;
                }
            }
        } else if let Some(begin) = self.low {
            let end = self.high.or_else(|| begin.checked_add(self.size?));
            if let Some(range) = end.map(|end| gimli::Range { begin, end }).filter(fits) {
                give(range);
            }
        }
    }
}
