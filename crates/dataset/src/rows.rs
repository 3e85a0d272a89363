//! Rows of a table in memory, column by column. A text is kept once.
use crate::schema::{Kind, Table};
use foldhash::HashMap;
use std::cmp::Ordering;
use std::sync::Arc;

/// One cell, as rows are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    Int(i64),
    Text(&'a str),
    Null,
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Cell::Int(value)
    }
}

/// Numbers of the engine are unsigned. One that does not fit is cut to the largest number.
impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Cell::Int(value.into())
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Cell::Text(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// The number that stands for null in a column of texts.
const NULL_TEXT: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub enum Data {
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    /// Numbers of texts.
    Texts(Vec<u32>),
}

/// Texts by number.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Texts {
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u32;
        let text: Arc<str> = text.into();
        self.all.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    pub fn get(&self, number: u32) -> Option<&str> {
        self.all.get(number as usize).map(|text| &**text)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The place of each text in their order.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_unstable_by(|a, b| self.all[*a as usize].cmp(&self.all[*b as usize]));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number as usize] = rank as u32;
        }
        ranks
    }
}

pub struct Rows {
    pub table: &'static Table,
    pub columns: Vec<Data>,
    pub texts: Texts,
    count: usize,
}

impl Rows {
    pub fn new(table: &'static Table) -> Self {
        let empty = |column: &crate::schema::Column| match (column.kind, column.is_optional) {
            (Kind::Text, _) => Data::Texts(Vec::new()),
            (_, true) => Data::MaybeInts(Vec::new()),
            (_, false) => Data::Ints(Vec::new()),
        };
        Rows { table, columns: table.columns.iter().map(empty).collect(), texts: Texts::default(), count: 0 }
    }

    /// Adds a row. Missing cells at its end are null, and a null in a column that has none is 0.
    pub fn push(&mut self, cells: &[Cell<'_>]) {
        for (at, column) in self.columns.iter_mut().enumerate() {
            let cell = cells.get(at).copied().unwrap_or(Cell::Null);
            let number = match cell {
                Cell::Int(number) => Some(number),
                _ => None,
            };
            match column {
                Data::Ints(values) => values.push(number.unwrap_or(0)),
                Data::MaybeInts(values) => values.push(number),
                Data::Texts(values) => values.push(match cell {
                    Cell::Text(text) => self.texts.number(text),
                    _ if self.table.columns[at].is_optional => NULL_TEXT,
                    _ => self.texts.number(""),
                }),
            }
        }
        self.count += 1;
    }

    /// Adds a text to one column, for readers, which fill columns one after the other.
    pub fn push_text(&mut self, column: usize, text: Option<&[u8]>) {
        let last = match &self.columns[column] {
            Data::Texts(values) => values.last().copied().unwrap_or(NULL_TEXT),
            _ => return,
        };
        // Neighbours are often equal, because rows are sorted.
        let number = match text {
            None => NULL_TEXT,
            Some(text) if self.texts.get(last).is_some_and(|last| last.as_bytes() == text) => last,
            Some(text) => self.texts.number(&String::from_utf8_lossy(text)),
        };
        if let Data::Texts(values) = &mut self.columns[column] {
            values.push(number);
        }
    }

    /// Says how many rows a reader has filled.
    pub const fn set_len(&mut self, count: usize) {
        self.count = count;
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn int(&self, column: usize, row: usize) -> Option<i64> {
        match self.columns.get(column)? {
            Data::Ints(values) => values.get(row).copied(),
            Data::MaybeInts(values) => values.get(row).copied().flatten(),
            Data::Texts(_) => None,
        }
    }

    pub fn text(&self, column: usize, row: usize) -> Option<&str> {
        match self.columns.get(column)? {
            Data::Texts(values) => self.texts.get(*values.get(row)?),
            _ => None,
        }
    }

    pub fn cell(&self, column: usize, row: usize) -> Cell<'_> {
        match self.columns.get(column) {
            Some(Data::Texts(_)) => self.text(column, row).into(),
            _ => self.int(column, row).into(),
        }
    }

    /// The rows in the order in which files of the table are sorted.
    pub fn sorted(&self) -> Vec<u32> {
        let ranks = self.texts.ranks();
        let by: Vec<usize> = self.table.sorted_by.iter().filter_map(|name| self.table.index(name)).collect();
        let mut order: Vec<u32> = (0..self.count as u32).collect();
        let rank = |text: u32| ranks.get(text as usize).copied();
        order.sort_by(|a, b| {
            let (a, b) = (*a as usize, *b as usize);
            let compared = by.iter().map(|column| match &self.columns[*column] {
                Data::Ints(values) => values[a].cmp(&values[b]),
                Data::MaybeInts(values) => values[a].cmp(&values[b]),
                Data::Texts(values) => rank(values[a]).cmp(&rank(values[b])),
            });
            compared.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
        });
        order
    }
}
