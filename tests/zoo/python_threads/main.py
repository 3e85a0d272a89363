# Eight threads of Python, with generators, signals and an event loop: 8 * 100 * 10 + 200 * 10 blocks.
import asyncio, ctypes, signal, sys, threading
blocks = ctypes.CDLL(sys.argv[1]).zoo_blocks
gate = threading.Event()
sums = []

def body():
    gate.wait()
    sums.append(sum(blocks(10) for _ in range(100)))

async def one():
    await asyncio.sleep(0)
    return blocks(10)

async def many():
    return sum(await asyncio.gather(*[one() for _ in range(200)]))

signal.signal(signal.SIGUSR1, lambda *_: sums.append(0))
threads = [threading.Thread(target=body) for _ in range(8)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
gate.set()
for thread in threads:
    signal.raise_signal(signal.SIGUSR1)
    thread.join()
print(sum(sums) + asyncio.run(many()))
