// Random blocks of up to 20,000 bytes, half of them freed again. For mimalloc, of 16 to 2048 bytes, of sizes that are its size classes. Prints
// what the allocator itself says is allocated, in bytes, and waits. Built with -DJEMALLOC or -DMIMALLOC for those allocators.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef JEMALLOC
#include <jemalloc/jemalloc.h>
#elif defined MIMALLOC
#include <mimalloc.h>
#else
#include <malloc.h>
#endif

#define COUNT 200000

#ifdef MIMALLOC
static bool add(const mi_heap_t *heap, const mi_heap_area_t *area, void *block, size_t size, void *sum) {
    (void)heap, (void)area;
    *(size_t *)sum += block ? size : 0;
    return true;
}
#endif

static size_t allocated(void) {
#ifdef JEMALLOC
    unsigned long long epoch = 1;
    size_t bytes = 0, size = sizeof epoch;
    // Freed blocks in the thread's cache count as allocated.
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    mallctl("epoch", &epoch, &size, &epoch, size);
    size = sizeof bytes;
    mallctl("stats.allocated", &bytes, &size, NULL, 0);
    return bytes;
#elif defined MIMALLOC
    size_t bytes = 0;
    mi_heap_visit_blocks(mi_heap_get_default(), true, add, &bytes);
    return bytes;
#else
    // The same numbers as in the text of malloc_info: what is in use in arenas, and what is mapped for large blocks.
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#endif
}

int main(void) {
#ifdef MIMALLOC
    static const size_t sizes[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048};
#endif
    static char *blocks[COUNT];
    unsigned chance = 1;
    for (int i = 0; i < COUNT; i++) {
        chance = chance * 1103515245 + 12345;
#ifdef MIMALLOC
        size_t size = sizes[(chance >> 16) % (sizeof sizes / sizeof *sizes)];
#else
        // Mostly small ones.
        size_t size = 1 + (chance >> 16) % (i % 100 ? 700 : 20000);
#endif
        blocks[i] = memset(malloc(size), 1, size);
    }
    for (int i = 0; i < COUNT; i += 2)
        free(blocks[i]);
    printf("%zu\n", allocated());
    fflush(stdout);
    for (;;)
        pause();
}
