//! Publishes the rows of a batch as files of the dataset.
use crate::manifest::{DataFile, Dataset, Partition};
use crate::parquet_file::{TableReader, TableWriter};
use crate::publish::{Published, Unfinished};
use crate::rows::Rows;
use crate::schema::{Place, Table};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

/// A file of one table that is being written. Its name follows from its batch and its partition.
pub struct NewFile {
    unfinished: Unfinished,
    writer: TableWriter<BufWriter<File>>,
    table: &'static Table,
    path: String,
}

impl NewFile {
    pub fn create(root: &Path, table: &'static Table, partition: &Partition, batch: i64) -> anyhow::Result<Self> {
        let folder = match table.place {
            Place::Partitioned => format!("{}/{}", table.name, partition.folder()),
            Place::Shared => table.name.to_owned(),
        };
        let path = format!("{folder}/{batch:016x}.parquet");
        let (unfinished, file) = Unfinished::create_part(&root.join(&path))?;
        let writer = TableWriter::new(table, BufWriter::new(file))?;
        Ok(NewFile { unfinished, writer, table, path })
    }

    pub fn write(&mut self, rows: &Rows) -> anyhow::Result<()> {
        self.writer.write(rows)
    }

    /// Publishes the file. If a writer that was killed, or one that runs now, has published it already, that file counts:
    /// it was made of the same trace.
    pub fn finish(self, root: &Path) -> anyhow::Result<DataFile> {
        let (mut rows, out) = self.writer.finish()?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        let name = root.join(&self.path);
        let is_whole = |name: &Path| TableReader::open(self.table, name).is_ok();
        if self.unfinished.publish(&file, is_whole)? == Published::Existed {
            rows = TableReader::open(self.table, &name)?.rows();
        }
        let bytes = fs::metadata(&name)?.len();
        Ok(DataFile { table: self.table.name.to_owned(), path: self.path, rows, bytes })
    }
}

/// Publishes all rows of one table.
pub fn publish(root: &Path, rows: &Rows, partition: &Partition, batch: i64) -> anyhow::Result<DataFile> {
    let mut file = NewFile::create(root, rows.table, partition, batch)?;
    file.write(rows)?;
    file.finish(root)
}

/// Reads the named columns of all live files of a table, a row group at a time.
pub fn scan(
    dataset: &Dataset,
    table: &'static Table,
    columns: &[&str],
    wanted: impl Fn(&Partition) -> bool,
    mut each: impl FnMut(&Partition, &Rows) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for entry in dataset.live() {
        if table.place == Place::Partitioned && !wanted(&entry.partition) {
            continue;
        }
        for file in entry.files_of(table.name) {
            let reader = TableReader::open(table, &dataset.path(file))?;
            for group in 0..reader.groups() {
                each(&entry.partition, &reader.read(group, columns)?)?;
            }
        }
    }
    Ok(())
}
