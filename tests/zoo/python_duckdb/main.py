# A table of 200,000 rows, made and summed by two threads of DuckDB, whose blocks come from a jemalloc of its own.
import sys
import duckdb

connection = duckdb.connect()
connection.execute("set threads to 2")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("create table t as select range a, range * 2 b, 'x' || range s from range(200000)")
print(*connection.execute("select sum(a), sum(b), count(distinct s) from t").fetchone(), flush=True)
