# Twenty frames of 100,000 numbers, made by the threads of Polars, whose blocks come from a jemalloc of its own.
import sys
import polars

print("ready", flush=True)
sys.stdin.readline()
frame = polars.DataFrame({"a": list(range(100000))})
kept = [frame.select(polars.col("a") + number) for number in range(20)]
print(sum(one["a"].sum() for one in kept), flush=True)
