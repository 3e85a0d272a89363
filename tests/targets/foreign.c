/* Defines mi_malloc_aligned and mi_free, which the linker keeps of mimalloc in a Rust program, and no function named malloc. It
   allocates and frees 100 blocks of 100 bytes by these functions, and 10 blocks of 7001 bytes by malloc and free. Prints "done". */
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
