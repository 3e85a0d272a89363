#!/usr/bin/env python3
"""Scales a compacted dataset to many rows: scale.py DATASET OUT ROWS.

Every trace is repeated under other session numbers until there are at least ROWS rows of sites. Files are written by
pyarrow, with the sorting and the row groups of heaptrack's own ones, one batch for each partition.
"""
import glob
import json
import os
import sys
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layout import SORTED_BY

dataset, out, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
SORT = {table: SORTED_BY[table] for table in ("sessions", "labels", "sites", "leaks")}
files = {table: sorted(glob.glob(f"{dataset}/{table}/*/*/*/*.parquet")) for table in SORT}
rows = sum(pq.read_metadata(file).num_rows for file in files["sites"])
times = -(-wanted // rows)
entries = {}
total = 0
for table, names in files.items():
    places = {}
    for name in names:
        places.setdefault(os.path.dirname(os.path.relpath(name, f"{dataset}/{table}")), []).append(name)
    for place, parts in places.items():
        batch = zlib.crc32(place.encode())
        once = pa.concat_tables([pq.ParquetFile(part).read() for part in parts])
        copies = []
        for copy in range(times):
            session = pc.bit_wise_xor(once["session"], pa.scalar(copy << 40, pa.int64()))
            columns = {name: once[name] for name in once.column_names}
            columns.update(session=session, batch=pa.array([batch] * len(once), pa.int64()))
            copies.append(pa.table(columns, schema=once.schema))
        all = pa.concat_tables(copies).sort_by([(key, "ascending") for key in SORT[table]])
        path = f"{table}/{place}/{batch:016x}.parquet"
        os.makedirs(os.path.dirname(f"{out}/{path}"), exist_ok=True)
        sorting = [pq.SortingColumn(all.column_names.index(key)) for key in SORT[table]]
        pq.write_table(all, f"{out}/{path}", row_group_size=65536, compression="zstd", write_page_index=True, sorting_columns=sorting)
        service, date, host = (part.split("=", 1)[1] for part in place.split("/"))
        entry = entries.setdefault(batch, dict(schema=1, kind="add", batch=batch, change=0, service=service, date=date, host=host, sessions=[batch], replaces=[], files=[]))
        entry["files"].append(dict(table=table, path=path, rows=len(all), bytes=os.path.getsize(f"{out}/{path}")))
        total += len(all) if table == "sites" else 0
os.makedirs(f"{out}/manifest", exist_ok=True)
for batch, entry in entries.items():
    with open(f"{out}/manifest/{batch:016x}.json", "w") as file:
        file.write(json.dumps(entry) + "\n")
print(f"{total} rows of sites, {times} times {rows}")
