/* A library with a private allocator, under one of jemalloc's names, as in polars. `work` takes 100 blocks of 100 bytes from it and calls
 * no malloc. The target `opens` calls `work`. */
#include "say.h"

static char arena[1 << 20];
static long used;

__attribute__((visibility("hidden"), noinline)) void *_rjem_malloc(long size) {
    used += (size + 15) & ~15L;
    return arena + used - ((size + 15) & ~15L);
}

void work(void) {
    for (int i = 0; i < 100; i++) {
        void *block = _rjem_malloc(100);
        KEEP(block);
    }
}
