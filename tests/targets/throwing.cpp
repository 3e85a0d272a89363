// Exceptions thrown through frames that hold blocks: 300 throws, 10 frames deep, each frame owns a vector of 10*depth bytes.
// Each throw also allocates the exception object (__cxa_allocate_exception calls malloc); all of it is freed again.
// Own blocks: 300 * 10 allocations and one of 200,000 bytes at the end, all freed. Prints "caught 300".
#include <memory>
#include <stdexcept>
#include <vector>
#include "say.h"

NOINLINE static int descend(int depth) {
    std::vector<char> held(static_cast<size_t>(depth) * 10);
    KEEP(held.data());
    if (depth == 1) throw depth;
    int result = descend(depth - 1);
    FRAME();
    return result + static_cast<int>(held.size());
}

int main() {
    int caught = 0;
    for (int i = 0; i < 300; i++) {
        try {
            caught += descend(10) > 1000;
        } catch (int depth) {
            caught += depth;
        }
    }
    std::unique_ptr<char[]> top(new char[200000]);  // the strict maximum
    KEEP(top.get());
    say("caught %d\n", caught);
    return caught == 300 ? 0 : 1;
}
