/* A small jemalloc with a prefix, in the program itself. Each free of a block gives the block's pages back with madvise, and every 10th free
 * maps and unmaps a page for the allocator. With the argument `wait` it first waits for a line, then for another one at the end.
 * 100 blocks of 8192 bytes; after each free the program maps a page itself, and unmaps it after the next one. */
#include <string.h>
#include <sys/mman.h>
#include "say.h"

#define P 4096UL
static char arena[4 << 20] __attribute__((aligned(4096)));
static size_t used, frees;

/* The part of jemalloc that changes mappings. */
NOINLINE void _rjem_je_pages_purge_forced(void *at, size_t bytes) {
    if (madvise(at, bytes, MADV_DONTNEED)) _exit(97);
    FRAME();
}
NOINLINE void *_rjem_je_pages_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(96);
    return at;
}
NOINLINE void _rjem_je_pages_unmap(void *at, size_t bytes) {
    if (munmap(at, bytes)) _exit(95);
    FRAME();
}

/* The functions for programs. */
NOINLINE void *_rjem_mallocx(size_t size, int flags) {
    if (flags || used + size > sizeof arena) _exit(94);
    return arena + (used += size) - size;
}
NOINLINE void _rjem_sdallocx(void *block, size_t size, int flags) {
    if (flags) _exit(93);
    _rjem_je_pages_purge_forced(block, size);
    if (frees++ % 10 == 0) _rjem_je_pages_unmap(_rjem_je_pages_map(P), P);
    FRAME();
}

NOINLINE static char *reserve(void) {
    char *at = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(92);
    return at;
}

NOINLINE static void give_back(char *at) {
    if (at && munmap(at, P)) _exit(91);
    FRAME();
}

static void wait_for_line(void) {
    char byte;
    do {
        if (read(0, &byte, 1) != 1) _exit(9);
    } while (byte != '\n');
}

int main(int argc, char **argv) {
    int waits = argc > 1 && !strcmp(argv[1], "wait");
    if (waits) say("ready\n"), wait_for_line();
    char *own = NULL;
    for (int i = 0; i < 100; i++) {
        void *block = _rjem_mallocx(2 * P, 0);
        KEEP(block);
        _rjem_sdallocx(block, 2 * P, 0);
        give_back(own);
        own = reserve();
    }
    say("done\n");
    if (waits) wait_for_line();
    return 0;
}
