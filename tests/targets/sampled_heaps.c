/* A small mimalloc in the program itself, with one heap at a time. 100 rounds: a heap gets 10 blocks of 6001 bytes and is destroyed; then a block of
 * 6002 bytes is allocated at the address of the first of them, and freed. Prints "done". */
#include <stddef.h>
#include "say.h"

#define LOCAL static NOINLINE
static char arena[1 << 20] __attribute__((aligned(4096)));
static size_t used;

LOCAL void *take(size_t size) {
    if (used + 8192 > sizeof arena || size > 8192) _exit(9);
    used += 8192;
    return arena + used - 8192;
}

LOCAL void *mi_malloc(size_t size) {
    if (size != 6002) _exit(4);
    void *block = take(size);
    KEEP(block);
    return block;
}
LOCAL void mi_free(void *block) {
    if (block != arena) _exit(8);
    used = 0;
    FRAME();
}
LOCAL void *mi_heap_new(void) {
    if (used) _exit(7);
    FRAME();
    return &used;
}
LOCAL void *mi_heap_malloc(void *heap, size_t size) {
    if (heap != &used) _exit(6);
    void *block = take(size);
    KEEP(block);
    return block;
}
LOCAL void mi_heap_destroy(void *heap) {
    if (heap != &used) _exit(5);
    used = 0;
    FRAME();
}

int main(void) {
    for (int round = 0; round < 100; round++) {
        void *heap = mi_heap_new();
        for (int i = 0; i < 10; i++) KEEP(mi_heap_malloc(heap, 6001));
        mi_heap_destroy(heap);
        void *block = mi_malloc(6002);
        KEEP(block);
        mi_free(block);
    }
    say("done\n");
    return 0;
}
