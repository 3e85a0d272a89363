//! The line table of one unit: maps addresses to files and lines.
use crate::part::Part;
use gimli::UnitRef;
use std::cell::OnceCell;
use std::rc::Rc;

struct Row {
    address: u64,
    file: u32,
    line: u32,
}

/// Rows of contiguous code: `count` rows from `rows[first]` on.
struct Sequence {
    start: u64,
    end: u64,
    first: usize,
    count: usize,
}

pub(crate) struct Lines {
    rows: Vec<Row>,
    /// Sorted by start.
    sequences: Vec<Sequence>,
    /// Paths, each made at its first use.
    files: Vec<OnceCell<Option<Rc<str>>>>,
}

/// In malformed files, sequences may overlap. A search looks at the last sequences that begin at or before the address,
/// at most at this many.
const LOOK_BACK: usize = 8;

impl Lines {
    pub(crate) fn new(unit: UnitRef<'_, Part<'_>>) -> Option<Self> {
        let program = unit.line_program.clone()?;
        let (mut rows, mut sequences) = (Vec::<Row>::new(), Vec::new());
        let mut first = 0;
        let mut steps = program.rows();
        while let Ok(Some((_, row))) = steps.next_row() {
            let address = row.address();
            if row.end_sequence() {
                if let Some(start) = rows.get(first).map(|row| row.address)
                    && start < address
                {
                    sequences.push(Sequence { start, end: address, first, count: rows.len() - first });
                }
                first = rows.len();
                continue;
            }
            let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
            // A file number that does not fit becomes the highest one, which names no file.
            let row = Row { address, file: u32::try_from(row.file_index()).unwrap_or(u32::MAX), line };
            match rows.get_mut(first..).and_then(<[Row]>::last_mut) {
                // Of several rows for one address the last counts.
                Some(last) if last.address == address => *last = row,
                _ => rows.push(row),
            }
        }
        sequences.sort_by_key(|sequence| sequence.start);
        let header = steps.header();
        let count = header.file_names().len() + 1;
        let files = std::iter::repeat_with(OnceCell::new).take(count).collect();
        Some(Lines { rows, sequences, files })
    }

    /// Bytes of memory.
    pub(crate) const fn size(&self) -> usize {
        self.rows.len() * size_of::<Row>() + self.sequences.len() * size_of::<Sequence>()
    }

    /// File and line of an address.
    pub(crate) fn find(&self, unit: UnitRef<'_, Part<'_>>, address: u64) -> Option<(Option<Rc<str>>, Option<u32>)> {
        let after = self.sequences.partition_point(|sequence| sequence.start <= address);
        let near = self.sequences.get(after.saturating_sub(LOOK_BACK)..after)?;
        let sequence = near.iter().rev().find(|sequence| address < sequence.end)?;
        let rows = self.rows.get(sequence.first..sequence.first + sequence.count)?;
        let row = rows.get(rows.partition_point(|row| row.address <= address).checked_sub(1)?)?;
        Some((self.file(unit, row.file as u64), Some(row.line).filter(|line| *line != 0)))
    }

    /// The ranges of the unit's code.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = gimli::Range> {
        self.sequences.iter().map(|sequence| gimli::Range { begin: sequence.start, end: sequence.end })
    }

    pub(crate) fn file(&self, unit: UnitRef<'_, Part<'_>>, number: u64) -> Option<Rc<str>> {
        let known = self.files.get(usize::try_from(number).ok()?)?;
        known.get_or_init(|| path(unit, number).map(Rc::from)).clone()
    }
}

fn path(unit: UnitRef<'_, Part<'_>>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let mut path = unit.comp_dir.and_then(Part::text).unwrap_or_default();
    // Folder 0 is that of the unit.
    if file.directory_index() != 0
        && let Some(folder) = file.directory(header)
    {
        push(&mut path, &unit.attr_string(folder).ok()?.text()?);
    }
    push(&mut path, &unit.attr_string(file.path_name()).ok()?.text()?);
    Some(path)
}

fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}
