#!/usr/bin/env python3
"""Shows what pyarrow reads of a dataset's files for the questions of fleet/: skipping.py DATASET [strict].

Checks that every column has statistics, that rows are sorted as the files say, and that row groups have at most 65,536
rows. Then counts for each question the bytes that it needs, by the metadata of the files, and those that pyarrow reads,
against all bytes of its tables. pyarrow reads the last 64 KiB of each file for its footer, so it reads small files as a
whole. With `strict`, fails if a question needs more than its part.
"""
import datetime
import glob
import io
import os
import sys

import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from layout import SORTED_BY

dataset, strict = sys.argv[1], sys.argv[2:] == ["strict"]


class Counting(fs.FileSystemHandler):
    """Passes reads on to the local file system, and counts bytes."""

    def __init__(self):
        self.local = fs.LocalFileSystem()
        self.bytes = 0

    def get_type_name(self):
        return "counting"

    def open_input_file(self, path):
        handler = self

        class File(io.FileIO):
            def readinto(self, buffer):
                count = super().readinto(buffer)
                handler.bytes += count
                return count

            def read(self, size=-1):
                data = super().read(size)
                handler.bytes += len(data)
                return data

        import pyarrow as pa

        return pa.PythonFile(File(path, "rb"), mode="r")

    open_input_stream = open_input_file

    def get_file_info(self, paths):
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.local.get_file_info(selector)

    def normalize_path(self, path):
        return path

    def __getattr__(self, name):
        raise AttributeError(name)


for method in ("create_dir", "delete_dir", "delete_dir_contents", "delete_root_dir_contents", "delete_file", "move", "copy_file", "open_output_stream", "open_append_stream"):
    setattr(Counting, method, lambda self, *rest: (_ for _ in ()).throw(NotImplementedError))
Counting.__abstractmethods__ = frozenset()


def parts(table):
    return glob.glob(f"{dataset}/{table}/*.parquet" if table in ("stacks", "frames") else f"{dataset}/{table}/*/*/*/*.parquet")


def check():
    """Every file of every table: row groups, statistics, page index, and the order that the file names."""
    groups = files = 0
    for table, keys in SORTED_BY.items():
        for name in parts(table):
            metadata = pq.read_metadata(name)
            names = metadata.schema.to_arrow_schema().names
            files += 1
            for at in range(metadata.num_row_groups):
                group = metadata.row_group(at)
                groups += 1
                assert group.num_rows <= 65536, name
                assert all(group.column(c).is_stats_set for c in range(group.num_columns)), name
                assert all(group.column(c).has_column_index and group.column(c).has_offset_index for c in range(group.num_columns)), name
                order = [(names[column.column_index], column.descending) for column in group.sorting_columns]
                assert order == [(key, False) for key in keys], (name, order)
            rows = pq.ParquetFile(name).read(columns=keys).select(keys)
            assert rows.sort_by([(key, "ascending") for key in keys]).equals(rows), name
    print(f"{groups} row groups in {files} files: statistics and page index on every column, at most 65,536 rows, sorted as their sorting_columns say")


def needed(name, columns, equal):
    """The bytes of a file that a question needs: the footer, and the columns of the row groups whose statistics have the value."""
    metadata = pq.read_metadata(name)
    names = metadata.schema.to_arrow_schema().names
    bytes = metadata.serialized_size + 8
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = {names[at]: group.column(at) for at in range(group.num_columns)}
        if equal is None or chunks[equal[0]].statistics.min <= equal[1] <= chunks[equal[0]].statistics.max:
            bytes += sum(chunks[column].total_compressed_size for column in columns if column in chunks)
    return bytes


def read(table, columns, service=None, since="", equal=None):
    """Returns the bytes that the question needs, those that pyarrow reads, those of the table's files, and the rows."""
    wanted = [name for name in parts(table) if name.split("date=")[1] >= since and (service is None or f"/service={service}/" in name)]
    condition = field("date") >= since
    if service:
        condition = condition & (field("service") == service)
    if equal:
        condition = condition & (field(equal[0]) == equal[1])
    handler = Counting()
    files = ds.dataset(f"{dataset}/{table}", format="parquet", partitioning="hive", filesystem=fs.PyFileSystem(handler))
    handler.bytes = 0
    rows = files.to_table(columns=columns, filter=condition).num_rows
    keys = columns + ([equal[0]] if equal else [])
    return sum(needed(name, keys, equal) for name in wanted), handler.bytes, sum(map(os.path.getsize, parts(table))), rows


def show(what, most, *reads):
    """Adds up what one or two tables need. `most` is the limit in percent; the tables of some questions are small, so mostly footers."""
    needs, found, all, rows = (sum(numbers) for numbers in zip(*reads))
    print(f"{what}: needs {needs:,} of {all:,} bytes ({100 * needs / all:.1f} %), pyarrow read {found:,}; {rows:,} rows")
    assert not strict or 100 * needs <= most * all, (what, most)


check()
field = ds.field
last = max(name.split("date=")[1][:10] for name in parts("sessions"))
first = str(datetime.date.fromisoformat(last) - datetime.timedelta(13))
show("top_peak", 100, read("sessions", ["version", "peak_bytes"]))
show("grown", 50, read("sites", ["function", "peak_bytes"], since=first))
show("leaking_hosts", 100, read("leaks", ["session", "live_bytes", "suppressed"], equal=("verdict", "grows")))
show("new_sites", 75, read("sites", ["version", "function", "session", "peak_bytes", "allocations"]))
show("label_costs", 100, read("labels", ["session", "key", "value"]), read("sessions", ["session", "peak_bytes", "allocated_bytes", "leaked_bytes"]))
show("one service, by its folder", 10, read("sites", ["function", "session", "peak_bytes"], service="perl"))
show("one function, by statistics", 50, read("sites", ["function", "session", "peak_bytes"], equal=("function", "Perl_safesysmalloc")))
