//! Writes and reads one Parquet file of a table.
//!
//! Must hold: rows are sorted as the table says, row groups have at most `ROW_GROUP` rows, and every column has
//! statistics and a page index, so that an engine can skip what a question does not need.
use crate::rows::{Data, Rows};
use crate::schema::{Column, Kind, SCHEMA, Table};
use anyhow::{Context, anyhow, bail};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The largest number of rows of a row group.
pub const ROW_GROUP: usize = 65_536;

/// The most rows of one page. Small pages make the page index useful.
const PAGE_ROWS: usize = 8_192;

fn field(column: &Column) -> anyhow::Result<TypePtr> {
    let (physical, logical) = match column.kind {
        Kind::Int => (Physical::INT64, None),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
    };
    let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = Type::primitive_type_builder(column.name, physical).with_repetition(repetition);
    Ok(Arc::new(field.with_logical_type(logical).build()?))
}

fn message(table: &Table) -> anyhow::Result<TypePtr> {
    let fields = table.columns.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?))
}

fn properties(table: &Table) -> anyhow::Result<WriterProperties> {
    let sorting = table.sorted_by.iter().filter_map(|name| table.index(name));
    let sorting =
        sorting.map(|column| SortingColumn { column_idx: column as i32, descending: false, nulls_first: true });
    let schema = KeyValue::new("heaptrack.schema".to_owned(), SCHEMA.to_string());
    Ok(WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_sorting_columns(Some(sorting.collect()))
        .set_key_value_metadata(Some(vec![schema]))
        .set_created_by("heaptrack".to_owned())
        .build())
}

/// A file that is written row group by row group.
pub struct TableWriter<W: Write + Send> {
    table: &'static Table,
    writer: SerializedFileWriter<W>,
    rows: u64,
}

impl<W: Write + Send> TableWriter<W> {
    pub fn new(table: &'static Table, out: W) -> anyhow::Result<Self> {
        let writer = SerializedFileWriter::new(out, message(table)?, Arc::new(properties(table)?))?;
        Ok(TableWriter { table, writer, rows: 0 })
    }

    /// Sorts the rows and writes them.
    pub fn write(&mut self, rows: &Rows) -> anyhow::Result<()> {
        for part in rows.sorted().chunks(ROW_GROUP) {
            let mut group = self.writer.next_row_group()?;
            for (at, column) in self.table.columns.iter().enumerate() {
                write_column(&mut group, column, rows, at, part)?;
            }
            group.close()?;
            self.rows += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the footer, and returns the number of rows and the file.
    pub fn finish(self) -> anyhow::Result<(u64, W)> {
        Ok((self.rows, self.writer.into_inner()?))
    }
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    rows: &Rows,
    at: usize,
    part: &[u32],
) -> anyhow::Result<()> {
    let mut writer = group.next_column()?.ok_or_else(|| anyhow!("{} has too few columns", rows.table.name))?;
    let ints = || part.iter().map(|row| rows.int(at, *row as usize));
    let levels: Option<Vec<i16>> = column.is_optional.then(|| match &rows.columns[at] {
        Data::Texts(_) => part.iter().map(|row| rows.text(at, *row as usize).is_some().into()).collect(),
        _ => ints().map(|value| value.is_some().into()).collect(),
    });
    let levels = levels.as_deref();
    match column.kind {
        Kind::Int | Kind::Time => {
            let values: Vec<i64> = ints().flatten().collect();
            writer.typed::<Int64Type>().write_batch(&values, levels, None)?;
        }
        Kind::Bool => {
            let values: Vec<bool> = ints().flatten().map(|value| value != 0).collect();
            writer.typed::<BoolType>().write_batch(&values, levels, None)?;
        }
        Kind::Text => {
            // Neighbours are often equal, because rows are sorted: they share one allocation.
            let mut values: Vec<ByteArray> = Vec::with_capacity(part.len());
            for text in part.iter().filter_map(|row| rows.text(at, *row as usize)) {
                match values.last() {
                    Some(last) if last.data() == text.as_bytes() => values.push(last.clone()),
                    _ => values.push(ByteArray::from(text)),
                }
            }
            writer.typed::<ByteArrayType>().write_batch(&values, levels, None)?;
        }
    }
    writer.close()?;
    Ok(())
}

/// A file that is read row group by row group.
pub struct TableReader {
    table: &'static Table,
    reader: SerializedFileReader<File>,
    name: String,
}

impl TableReader {
    pub fn open(table: &'static Table, path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        let reader = SerializedFileReader::new(file).with_context(|| format!("{name} is no Parquet file"))?;
        Ok(TableReader { table, reader, name })
    }

    pub fn rows(&self) -> u64 {
        u64::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Reads the named columns of a row group. The others are empty. A column that the file lacks is null.
    pub fn read(&self, group: usize, columns: &[&str]) -> anyhow::Result<Rows> {
        let mut rows = Rows::new(self.table);
        let reader = self.reader.get_row_group(group)?;
        let count = usize::try_from(reader.metadata().num_rows()).unwrap_or(0);
        let descriptor = self.reader.metadata().file_metadata().schema_descr();
        for name in columns {
            let Some(at) = self.table.index(name) else { bail!("there is no column {name}") };
            let found = descriptor.columns().iter().position(|column| column.name() == *name);
            let read = match found {
                Some(found) => read_column(reader.get_column_reader(found)?, count, &mut rows, at),
                None => {
                    fill(&mut rows, at, count);
                    Ok(())
                }
            };
            read.with_context(|| format!("{}, column {name}", self.name))?;
        }
        rows.set_len(count);
        Ok(rows)
    }
}

fn fill(rows: &mut Rows, at: usize, count: usize) {
    match &mut rows.columns[at] {
        Data::Ints(values) => values.resize(count, 0),
        Data::MaybeInts(values) => values.resize(count, None),
        Data::Texts(_) => (0..count).for_each(|_| rows.push_text(at, None)),
    }
}

fn read_column(reader: ColumnReader, count: usize, rows: &mut Rows, at: usize) -> anyhow::Result<()> {
    let mut levels = Vec::new();
    let is_optional = rows.table.columns[at].is_optional;
    let found = match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(count);
            let (found, ..) = reader.read_records(count, is_optional.then_some(&mut levels), None, &mut values)?;
            put_ints(rows, at, values.into_iter(), &levels);
            found
        }
        ColumnReader::BoolColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(count);
            let (found, ..) = reader.read_records(count, is_optional.then_some(&mut levels), None, &mut values)?;
            put_ints(rows, at, values.into_iter().map(i64::from), &levels);
            found
        }
        ColumnReader::ByteArrayColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(count);
            let (found, ..) = reader.read_records(count, is_optional.then_some(&mut levels), None, &mut values)?;
            put_texts(rows, at, &values, &levels);
            found
        }
        _ => bail!("a type that heaptrack does not write"),
    };
    match found == count {
        true => Ok(()),
        false => bail!("{found} of {count} rows"),
    }
}

fn put_ints(rows: &mut Rows, at: usize, mut values: impl Iterator<Item = i64>, levels: &[i16]) {
    match &mut rows.columns[at] {
        Data::Ints(column) => column.extend(values),
        Data::MaybeInts(column) => {
            column.extend(levels.iter().map(|level| if *level > 0 { values.next() } else { None }));
        }
        Data::Texts(_) => {}
    }
}

fn put_texts(rows: &mut Rows, at: usize, values: &[ByteArray], levels: &[i16]) {
    let mut values = values.iter();
    match levels {
        [] => values.for_each(|value| rows.push_text(at, Some(value.data()))),
        levels => {
            for level in levels {
                let value = if *level > 0 { values.next() } else { None };
                rows.push_text(at, value.map(ByteArray::data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SESSIONS;

    /// A file of the first version has no `sampling_rate_bytes`.
    #[test]
    fn a_column_that_came_later_is_null() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/first/sessions");
        let name = "service=shop/date=2026-11-18/host=a/4dc4e15cd3e8f6fc.parquet";
        let reader = TableReader::open(&SESSIONS, &Path::new(folder).join(name)).unwrap();
        let rows = reader.read(0, &["version", "sampling_rate_bytes"]).unwrap();
        let at = |name: &str| SESSIONS.index(name).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows.text(at("version"), 0), Some("1.4"));
        assert_eq!(rows.int(at("sampling_rate_bytes"), 0), None);
    }
}
