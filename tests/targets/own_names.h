/* Small allocators under the names of jemalloc with a prefix, mimalloc, snmalloc and rpmalloc. All their functions are local symbols.
 * They take memory from an arena and call no malloc. `own_names_work(ROUNDS)` does, in each round:
 *
 *   jemalloc   mallocx 8001, rallocx to 8002, xallocx to 8003, sdallocx; calloc 8004 = 4 x 2001, free; posix_memalign 8005, free
 *   mimalloc   heap_malloc 8006, heap_realloc to 8007, free; calloc_aligned 8008 = 8 x 1001; recalloc_aligned to 8010 = 10 x 801,
 *              free_size; strdup of 16 characters (17 bytes), free; new_n 8012 = 4 x 2003, free; expand of a block of 8013 fails
 *   snmalloc   rust_alloc 8014, rust_realloc to 8015, rust_dealloc
 *   rpmalloc   rpaligned_calloc 8016 = 8 x 1002, rpfree; rpmalloc_heap_alloc 8017, rpmalloc_heap_free
 *
 * Every 10th round leaks a block of 8018 bytes from mallocx. A resize is an allocation, so a round has 16, and every 10th one 17.
 * The functions check their arguments, so an argument that is lost on the way ends the program. */
#include <stddef.h>
#include <string.h>

#define LOCAL static __attribute__((noinline, noclone))
#define REQUIRE(condition) do { if (!(condition)) __builtin_trap(); } while (0)

static char own_names_arena[96 << 20] __attribute__((aligned(4096)));
static size_t own_names_used;

/* Blocks are never used again. The size is in front of each block. */
LOCAL void *own_names_take(size_t size, size_t alignment) {
    size_t at = (own_names_used + 16 + alignment - 1) / alignment * alignment;
    REQUIRE(at + size <= sizeof own_names_arena);
    own_names_used = at + size;
    *(size_t *)(own_names_arena + at - 16) = size;
    return own_names_arena + at;
}

LOCAL void own_names_return(void *block) {
    char *at = (char *)block - 16;
    if (block) *(size_t *)at = 0;
    __asm__ volatile("" : : "r"(at) : "memory");
}

LOCAL void *own_names_move(void *block, size_t size, size_t alignment) {
    char *new = own_names_take(size, alignment);
    size_t old = block ? *(size_t *)((char *)block - 16) : 0;
    memcpy(new, block ? block : new, old < size ? old : size);
    own_names_return(block);
    return new;
}

#define HEAP ((void *)0x1234)

/* A message of jemalloc's, by which the program is known if it has no symbols. */
static const char *volatile own_names_message = "<jemalloc>: out of memory\n";

/* jemalloc */
LOCAL void *odd_prefix_mallocx(size_t size, int flags) { REQUIRE(flags == 7); return own_names_take(size, 16); }
LOCAL void *odd_prefix_rallocx(void *block, size_t size, int flags) { REQUIRE(flags == 7); return own_names_move(block, size, 16); }
LOCAL size_t odd_prefix_xallocx(void *block, size_t size, size_t extra, int flags) {
    REQUIRE(flags == 7 && extra == 0);
    own_names_used += 64;
    *(size_t *)((char *)block - 16) = size;
    return size;
}
LOCAL void odd_prefix_sdallocx(void *block, size_t size, int flags) {
    REQUIRE(flags == 7 && *(size_t *)((char *)block - 16) == size);
    own_names_return(block);
}
LOCAL void *odd_prefix_calloc(size_t count, size_t each) { return own_names_take(count * each, 16); }
LOCAL int odd_prefix_posix_memalign(void **out, size_t alignment, size_t size) {
    *out = own_names_take(size, alignment);
    return *out == NULL;
}
LOCAL void odd_prefix_free(void *block) { REQUIRE(block != HEAP); own_names_return(block); }

/* mimalloc */
LOCAL void *mi_heap_malloc(void *heap, size_t size) { REQUIRE(heap == HEAP); return own_names_take(size, 16); }
LOCAL void *mi_heap_realloc(void *heap, void *block, size_t size) { REQUIRE(heap == HEAP); return own_names_move(block, size, 16); }
LOCAL void *mi_calloc_aligned(size_t count, size_t each, size_t alignment) {
    REQUIRE(alignment == 64);
    return own_names_take(count * each, alignment);
}
LOCAL void *mi_recalloc_aligned(void *block, size_t count, size_t each, size_t alignment) {
    REQUIRE(alignment == 64);
    return own_names_move(block, count * each, alignment);
}
LOCAL void *mi_malloc(size_t size) { REQUIRE(size); return mi_heap_malloc(HEAP, size); }
LOCAL void *mi_mallocn(size_t count, size_t each) { REQUIRE(each); return mi_malloc(count * each); }
LOCAL void *mi_new_n(size_t count, size_t each) {
    void *block = mi_mallocn(count, each);
    REQUIRE(block);
    return block;
}
LOCAL char *mi_strdup(const char *text) { return strcpy(mi_malloc(strlen(text) + 1), text); }
LOCAL void *mi_expand(void *block, size_t size) {
    REQUIRE(size > *(size_t *)((char *)block - 16));
    return NULL;
}
LOCAL void mi_free(void *block) { REQUIRE(block != HEAP); own_names_return(block); }
LOCAL void mi_free_size(void *block, size_t size) { REQUIRE(size); mi_free(block); }

/* snmalloc */
LOCAL void *sn_rust_alloc(size_t alignment, size_t size) { REQUIRE(alignment == 32); return own_names_take(size, alignment); }
LOCAL void *sn_rust_realloc(void *block, size_t alignment, size_t old, size_t size) {
    REQUIRE(alignment == 32 && *(size_t *)((char *)block - 16) == old);
    return own_names_move(block, size, alignment);
}
LOCAL void sn_rust_dealloc(void *block, size_t alignment, size_t size) {
    REQUIRE(alignment == 32 && *(size_t *)((char *)block - 16) == size);
    own_names_return(block);
}

/* rpmalloc */
LOCAL void *rpaligned_calloc(size_t alignment, size_t count, size_t each) { REQUIRE(alignment == 32); return own_names_take(count * each, alignment); }
LOCAL void rpfree(void *block) { REQUIRE(block != HEAP); own_names_return(block); }
/* Not the same code as mi_heap_malloc, because compilers make one function of two that are equal. */
LOCAL void *rpmalloc_heap_alloc(void *heap, size_t size) { REQUIRE(heap == HEAP); return own_names_take(size, 32); }
LOCAL void rpmalloc_heap_free(void *heap, void *block) { REQUIRE(heap == HEAP); own_names_return(block); }

static __attribute__((noinline)) void own_names_round(int round) {
    void *block = odd_prefix_rallocx(odd_prefix_mallocx(8001, 7), 8002, 7);
    REQUIRE(odd_prefix_xallocx(block, 8003, 0, 7) == 8003);
    odd_prefix_sdallocx(block, 8003, 7);
    odd_prefix_free(odd_prefix_calloc(4, 2001));
    REQUIRE(odd_prefix_posix_memalign(&block, 128, 8005) == 0);
    odd_prefix_free(block);
    mi_free(mi_heap_realloc(HEAP, mi_heap_malloc(HEAP, 8006), 8007));
    mi_free_size(mi_recalloc_aligned(mi_calloc_aligned(8, 1001, 64), 10, 801, 64), 8010);
    mi_free(mi_strdup("sixteen letters."));
    mi_free(mi_new_n(4, 2003));
    block = mi_malloc(8013);
    REQUIRE(mi_expand(block, 100000) == NULL);
    mi_free(block);
    sn_rust_dealloc(sn_rust_realloc(sn_rust_alloc(32, 8014), 32, 8014, 8015), 32, 8015);
    rpfree(rpaligned_calloc(32, 8, 1002));
    rpmalloc_heap_free(HEAP, rpmalloc_heap_alloc(HEAP, 8017));
    if (round % 10 == 0) {
        block = odd_prefix_mallocx(8018, 7);
        __asm__ volatile("" : : "r"(block) : "memory");
    }
}

static void own_names_work(int rounds) {
    REQUIRE(own_names_message[0] == '<');
    for (int round = 0; round < rounds; round++) own_names_round(round);
}
