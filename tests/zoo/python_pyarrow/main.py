# 10,000 buffers from Arrow's pool of mimalloc. 100 of them live together until the program ends.
import sys
import pyarrow

pool = pyarrow.mimalloc_memory_pool()
pyarrow.set_memory_pool(pool)
print("ready", flush=True)
sys.stdin.readline()
before = pool.num_allocations()
kept = [pyarrow.allocate_buffer(4321) for _ in range(100)]
for _ in range(9900):
    pyarrow.allocate_buffer(4321)
print(pool.num_allocations() - before, flush=True)
