#!/usr/bin/env python3
"""Shows what pyarrow reads of a dataset's files for typical questions: skipping.py DATASET.

Checks that every column has statistics, that rows are sorted, and that row groups have at most 65,536 rows. Then counts
the bytes that are read for a question with its filter, against all bytes of the table.
"""
import glob
import io
import os
import sys

import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

dataset = sys.argv[1]


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


def check():
    groups = 0
    for table in ("sites", "sessions", "leaks", "buckets"):
        for name in glob.glob(f"{dataset}/{table}/*/*/*/*.parquet"):
            metadata = pq.read_metadata(name)
            for at in range(metadata.num_row_groups):
                group = metadata.row_group(at)
                groups += 1
                assert group.num_rows <= 65536, name
                assert all(group.column(c).is_stats_set for c in range(group.num_columns)), name
                assert all(group.column(c).has_column_index for c in range(group.num_columns)), name
                assert group.sorting_columns or "ARROW:schema" in str(metadata.metadata), name
            if table == "sites":
                functions = pq.ParquetFile(name).read(columns=["function"])["function"].to_pylist()
                assert functions == sorted(functions, key=lambda text: text.encode()), name
    print(f"{groups} row groups: statistics and page index on every column, at most 65,536 rows, sites sorted by function")


def read(what, columns, condition):
    handler = Counting()
    files = ds.dataset(f"{dataset}/sites", format="parquet", partitioning="hive", filesystem=fs.PyFileSystem(handler))
    handler.bytes = 0
    rows = files.to_table(columns=columns, filter=condition).num_rows
    all = sum(os.path.getsize(name) for name in glob.glob(f"{dataset}/sites/*/*/*/*.parquet"))
    print(f"{what}: {handler.bytes:,} of {all:,} bytes ({100 * handler.bytes / all:.1f} %), {rows:,} rows")


check()
field = ds.field
read("everything", None, None)
read("sums by function (3 columns)", ["function", "session", "peak_bytes"], None)
read("one service (partition)", ["function", "session", "peak_bytes"], field("service") == "perl")
read("one week (partition)", ["function", "session", "peak_bytes"], field("date") >= "2026-11-10")
read("one function (statistics)", ["function", "session", "peak_bytes"], field("function") == "Perl_safesysmalloc")
