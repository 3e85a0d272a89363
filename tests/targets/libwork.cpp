// A library for the target `opens`. Its constructor calls malloc(6001) 10 times. `work` calls malloc(6002) 1000 times and `new` of 6003
// bytes 1000 times. All are freed.
#include <cstdlib>
#include <new>
#include "say.h"

NOINLINE static void calls(int count, std::size_t size) {
    for (int i = 0; i < count; i++) {
        void *block = std::malloc(size);
        KEEP(block);
        std::free(block);
    }
}

__attribute__((constructor)) static void construct() { calls(10, 6001); }

extern "C" void work() {
    calls(1000, 6002);
    for (int i = 0; i < 1000; i++) {
        void *block = ::operator new(6003);
        KEEP(block);
        ::operator delete(block);
    }
}
