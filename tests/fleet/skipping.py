#!/usr/bin/env python3
"""Shows what pyarrow reads of a dataset's files for the questions of fleet/: skipping.py DATASET MOST-PERCENT.

Checks that every column has statistics, that rows are sorted as the files say, and that row groups have at most 65,536
rows. Then counts the bytes that are read for a question with its columns and its filter, against all bytes of its tables,
and fails if a question reads more than MOST-PERCENT of them.
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

dataset, most = sys.argv[1], float(sys.argv[2])


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


def read(table, columns, condition=None):
    """Returns the bytes that are read, the bytes of the table's files, and the rows."""
    handler = Counting()
    files = ds.dataset(f"{dataset}/{table}", format="parquet", partitioning="hive", filesystem=fs.PyFileSystem(handler))
    handler.bytes = 0
    rows = files.to_table(columns=columns, filter=condition).num_rows
    return handler.bytes, sum(map(os.path.getsize, parts(table))), rows


def show(what, *reads):
    """Adds up what was read of one or two tables."""
    found, all, rows = (sum(numbers) for numbers in zip(*reads))
    print(f"{what}: {found:,} of {all:,} bytes ({100 * found / all:.1f} %), {rows:,} rows")
    assert 100 * found <= most * all, (what, most)


check()
field = ds.field
last = max(name.split("date=")[1][:10] for name in parts("sessions"))
first = str(datetime.date.fromisoformat(last) - datetime.timedelta(13))
show("top_peak", read("sessions", ["service", "version", "peak_bytes"]))
show("grown", read("sites", ["service", "function", "peak_bytes"], field("date") >= first))
show("leaking_hosts", read("leaks", ["session", "live_bytes", "suppressed"], field("verdict") == "grows"))
show("new_sites", read("sites", ["version", "function", "session", "peak_bytes", "allocations"]))
show("label_costs", read("labels", ["session", "key", "value"]), read("sessions", ["session", "peak_bytes", "allocated_bytes", "leaked_bytes"]))
show("one service, by its folder", read("sites", ["function", "session", "peak_bytes"], field("service") == "perl"))
show("one function, by statistics", read("sites", ["function", "session", "peak_bytes"], field("function") == "Perl_safesysmalloc"))
