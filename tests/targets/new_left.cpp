// Calls `new int[10]` 1000 times and frees none. Prints "1000". With -DOWN the program defines new[] and delete[] itself, which call malloc
// and free.
#include <cstdlib>
#include <new>
#include "say.h"

#ifdef OWN
void *operator new[](std::size_t size) {
    void *block = std::malloc(size);
    if (!block) throw std::bad_alloc();
    return block;
}
void operator delete[](void *block) noexcept { std::free(block); }
void operator delete[](void *block, std::size_t) noexcept { std::free(block); }
#endif

static int *blocks[1000];

int main() {
    for (int *&block : blocks) {
        block = new int[10];
        KEEP(block);
    }
    say("1000\n");
    return 0;
}
