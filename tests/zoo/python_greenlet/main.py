# 100 greenlets. When another greenlet runs, a greenlet's part of the C stack is copied away: 100 * 10 * 10 blocks.
import ctypes, sys, greenlet
blocks = ctypes.CDLL(sys.argv[1]).zoo_blocks
main = greenlet.getcurrent()

def body():
    total = 0
    for _ in range(10):
        main.switch()
        total += blocks(10)
    return total

greenlets = [greenlet.greenlet(body) for _ in range(100)]
for one in greenlets:
    one.switch()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(9):
    for one in greenlets:
        one.switch()
print(sum(one.switch() for one in greenlets))
