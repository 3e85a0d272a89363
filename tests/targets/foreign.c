/* A program that contains what the linker leaves of mimalloc in a Rust program: no function is called malloc. It allocates 100 blocks
   from mimalloc and 10 from malloc, of 7001 bytes each. */
#include <stdlib.h>
#include "say.h"

static char arena[1 << 20];
static long used;

NOINLINE void *mi_malloc_aligned(long size, long alignment) {
    used = (used + alignment - 1) / alignment * alignment + size;
    return arena + used - size;
}
NOINLINE void mi_free(void *block) { KEEP(block); }

int main(void) {
    for (int i = 0; i < 100; i++) mi_free(mi_malloc_aligned(100, 16));
    for (int i = 0; i < 10; i++) ALLOCATE_AND_FREE(7001);
    say("done\n");
    return 0;
}
