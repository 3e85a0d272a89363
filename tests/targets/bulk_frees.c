/* Frees whole heaps at once: bulk_frees [wait | mixed]. With -DMIMALLOC mimalloc's heaps, otherwise jemalloc's arenas. It does 20 rounds
 * in main. In each round a heap gets 50 blocks of 7001 bytes, 10 aligned ones of 7002 bytes (4 of them are freed one by one), and one of
 * 7003 bytes that is resized to 7004 bytes in place. Then the heap ends. With mimalloc, every 4th round deletes a second heap instead, so
 * that its 3 blocks of 7005 bytes stay; 2 of them are freed later. With jemalloc, the odd rounds end the arena by numbers (mallctlbymib),
 * and every 4th round resets the arena, fills it with 5 blocks of 7006 bytes, and resets it again before it is destroyed. The last heap has
 * 7 blocks of 7007 bytes and is never ended. "mixed": a function without a heap allocates a block of 7008 bytes in a heap that ends.
 * Prints "ready" and waits for a line first if its argument is "wait"; prints "done" at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20

#ifdef MIMALLOC
#include <mimalloc.h>
typedef mi_heap_t *Heap;
static Heap new_heap(void) { return mi_heap_new(); }
static void *get(Heap heap, size_t size) { return mi_heap_malloc(heap, size); }
static void *get_aligned(Heap heap, size_t size) { return mi_heap_malloc_aligned(heap, size, 256); }
static void *resize(Heap heap, void *block, size_t size) { (void)heap; return mi_realloc(block, size); }
static void release(void *block) { mi_free(block); }
static void end(Heap heap, int round) { (void)round; mi_heap_destroy(heap); }

static void special(int round) {
    Heap heap = mi_heap_new();
    void *kept[3];
    for (int i = 0; i < 3; i++) kept[i] = mi_heap_malloc(heap, 7005);
    mi_heap_delete(heap);
    if (round) mi_free(kept[0]), mi_free(kept[1]);
}

static void mixed(void) {
    Heap heap = mi_heap_new();
    Heap before = mi_heap_set_default(heap);
    *(volatile char *)mi_malloc(7008) = 1;
    mi_heap_set_default(before);
    mi_heap_destroy(heap);
}
#else
#include <jemalloc/jemalloc.h>
typedef unsigned Heap;
static Heap new_heap(void) {
    Heap arena;
    size_t size = sizeof arena;
    if (mallctl("arenas.create", &arena, &size, NULL, 0)) abort();
    return arena;
}
static int flags(Heap arena) { return MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE; }
static void *get(Heap arena, size_t size) { return mallocx(size, flags(arena)); }
static void *get_aligned(Heap arena, size_t size) { return mallocx(size, flags(arena) | MALLOCX_ALIGN(256)); }
static void *resize(Heap arena, void *block, size_t size) { return rallocx(block, size, flags(arena)); }
static void release(void *block) { dallocx(block, MALLOCX_TCACHE_NONE); }

static void control(Heap arena, const char *what, int by_numbers) {
    char name[64];
    if (!by_numbers) {
        snprintf(name, sizeof name, "arena.%u.%s", arena, what);
        if (mallctl(name, NULL, NULL, NULL, 0)) abort();
        return;
    }
    size_t numbers[3], length = 3;
    snprintf(name, sizeof name, "arena.0.%s", what);
    if (mallctlnametomib(name, numbers, &length)) abort();
    numbers[1] = arena;
    if (mallctlbymib(numbers, 3, NULL, NULL, NULL, 0)) abort();
}

static void end(Heap arena, int round) { control(arena, "destroy", round & 1); }

static void special(int round) {
    Heap arena = new_heap();
    for (int i = 0; i < 5; i++) get(arena, 7006);
    control(arena, "reset", round & 4);
    for (int i = 0; i < 5; i++) get(arena, 7006);
    control(arena, "reset", !(round & 4));
    control(arena, "destroy", 0);
    /* Automatic arenas cannot be reset, so this does nothing. */
    if (!mallctl("arena.0.reset", NULL, NULL, NULL, 0)) abort();
}

static void mixed(void) {
    unsigned arena = new_heap(), before;
    size_t size = sizeof before;
    if (mallctl("thread.tcache.flush", NULL, NULL, NULL, 0)) abort();
    if (mallctl("thread.arena", &before, &size, &arena, sizeof arena)) abort();
    *(volatile char *)mallocx(7008, MALLOCX_TCACHE_NONE) = 1;
    if (mallctl("thread.arena", NULL, NULL, &before, sizeof before)) abort();
    if (mallctl("thread.tcache.flush", NULL, NULL, NULL, 0)) abort();
    control(arena, "reset", 0);
}
#endif

static void round_of(int round) {
    Heap heap = new_heap();
    void *aligned[10];
    for (int i = 0; i < 50; i++) get(heap, 7001);
    for (int i = 0; i < 10; i++) aligned[i] = get_aligned(heap, 7002);
    for (int i = 0; i < 4; i++) release(aligned[i]);
    void *small = get(heap, 7003);
    if (resize(heap, small, 7004) != small) abort();
    end(heap, round);
    if (round % 4 == 0) special(round);
}

int main(int argc, char **argv) {
    char line[80];
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 1;
    }
    for (int round = 0; round < ROUNDS; round++) round_of(round);
    if (argc > 1 && !strcmp(argv[1], "mixed")) mixed();
    Heap last = new_heap();
    for (int i = 0; i < 7; i++) get(last, 7007);
    puts("done");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "wait") && !fgets(line, sizeof line, stdin)) return 1;
    return 0;
}
