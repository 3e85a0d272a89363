/* The hooked functions of libc except cfree, checked against what the manual (and glibc) promises, with errno watched. Prints one
 * line per check that fails and "hooks: N checks, M failed"; with and without heaptrack the output is the same.
 *
 * Sizes tell the sites apart; what must be in the trace, by size:
 *   1001 three times (malloc twice, calloc 7*143); 1003, 2003 (realloc), 3003 (reallocarray), 4001 (posix_memalign),
 *   8192 (aligned_alloc), 5001 (memalign), 6001 (valloc), 7001 (pvalloc: as requested, not as rounded), 11 (strdup),
 *   119, each once; three blocks of 0 bytes (malloc, calloc, realloc(NULL, 0)). None of them is left.
 * Not in the trace: every call below that returns NULL. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

static int checks, failed;
#define CHECK(condition)                                         \
    do {                                                         \
        checks++;                                                \
        if (!(condition)) {                                      \
            failed++;                                            \
            say("line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
        }                                                        \
    } while (0)

/* Called through pointers, because the compiler knows these functions and would remove or reject the calls that are tested. */
static void *(*volatile do_malloc)(size_t) = malloc;
static void *(*volatile do_calloc)(size_t, size_t) = calloc;
static void *(*volatile do_realloc)(void *, size_t) = realloc;
static void *(*volatile do_reallocarray)(void *, size_t, size_t) = reallocarray;
static int (*volatile do_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void *(*volatile do_aligned_alloc)(size_t, size_t) = aligned_alloc;
static void *(*volatile do_memalign)(size_t, size_t) = memalign;
static void *(*volatile do_valloc)(size_t) = valloc;
static void *(*volatile do_pvalloc)(size_t) = pvalloc;
static void (*volatile do_free)(void *) = free;

#define HUGE_SIZE ((size_t)PTRDIFF_MAX)
#define ALIGNED(pointer, to) (((uintptr_t)(pointer) & ((to) - 1)) == 0)

NOINLINE static void plain(void) {
    errno = 0;
    char *block = do_malloc(1001);
    CHECK(block != NULL && errno == 0);
    CHECK(ALIGNED(block, 16));
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= 1001);
    memset(block, 0xa5, usable);
    errno = 4242;
    do_free(block);
    CHECK(errno == 4242);
    do_free(NULL);
    CHECK(errno == 4242);
    void *nothing = do_malloc(0);
    CHECK(nothing != NULL && errno == 4242);
    do_free(nothing);
    errno = 0;
    CHECK(do_malloc(HUGE_SIZE) == NULL && errno == ENOMEM);
}

NOINLINE static void zeroed(void) {
    char *dirty = do_malloc(1001);
    memset(dirty, 0xff, 1001);
    do_free(dirty);
    errno = 0;
    unsigned char *block = do_calloc(7, 143);
    int sum = 0;
    for (int i = 0; i < 1001; i++) sum |= block[i];
    CHECK(sum == 0 && errno == 0);
    do_free(block);
    errno = 0;
    CHECK(do_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(do_calloc(HUGE_SIZE, 1) == NULL && errno == ENOMEM);
    block = do_calloc(0, 5);
    CHECK(block != NULL);
    do_free(block);
}

NOINLINE static void resized(void) {
    char *block = do_realloc(NULL, 1003);
    CHECK(block != NULL);
    memset(block, 'x', 1003);
    char *larger = do_realloc(block, 2003);
    CHECK(larger != NULL && larger[0] == 'x' && larger[1002] == 'x');
    errno = 0;
    CHECK(do_realloc(larger, HUGE_SIZE) == NULL && errno == ENOMEM);
    CHECK(larger[0] == 'x' && malloc_usable_size(larger) >= 2003); /* a failed realloc keeps the block */
    errno = 0;
    CHECK(do_reallocarray(larger, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    CHECK(larger[1002] == 'x');
    larger = do_reallocarray(larger, 3, 1001);
    CHECK(larger != NULL && larger[1002] == 'x');
    errno = 777;
    CHECK(do_realloc(larger, 0) == NULL && errno == 777); /* glibc: frees */
    errno = 0;
    CHECK(do_realloc(NULL, HUGE_SIZE) == NULL && errno == ENOMEM);
    void *nothing = do_realloc(NULL, 0);
    CHECK(nothing != NULL);
    do_free(nothing);
}

NOINLINE static void aligned(void) {
    void *block = &block, *before = block;
    errno = 555;
    CHECK(do_posix_memalign(&block, 3, 100) == EINVAL && errno == 555 && block == before);
    CHECK(do_posix_memalign(&block, 4, 100) == EINVAL && errno == 555 && block == before);
    CHECK(do_posix_memalign(&block, 0, 100) == EINVAL && block == before);
    int refused = do_posix_memalign(&block, 4096, HUGE_SIZE);
    CHECK(refused == ENOMEM && block == before);
    errno = 556;
    CHECK(do_posix_memalign(&block, 1 << 16, 4001) == 0 && ALIGNED(block, 1 << 16) && errno == 556);
    CHECK(malloc_usable_size(block) >= 4001);
    do_free(block);
    block = do_aligned_alloc(4096, 8192);
    CHECK(block != NULL && ALIGNED(block, 4096));
    do_free(block);
    errno = 0;
    CHECK(do_aligned_alloc(4096, HUGE_SIZE) == NULL && errno == ENOMEM);
    block = do_memalign(256, 5001);
    CHECK(block != NULL && ALIGNED(block, 256));
    do_free(block);
    block = do_valloc(6001);
    CHECK(block != NULL && ALIGNED(block, 4096));
    do_free(block);
    block = do_pvalloc(7001);
    CHECK(block != NULL && ALIGNED(block, 4096) && malloc_usable_size(block) >= 8192);
    do_free(block);
    errno = 0;
    CHECK(do_pvalloc(HUGE_SIZE) == NULL && errno == ENOMEM);
}

NOINLINE static void by_libc(void) {
    char *copy = strdup("ten chars!"), *text = NULL, *line = NULL;
    CHECK(copy != NULL && strcmp(copy, "ten chars!") == 0);
    do_free(copy);
    CHECK(asprintf(&text, "%d and %s", 12345, "some words") == 20 && strcmp(text, "12345 and some words") == 0);
    do_free(text);
    size_t room = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL && getline(&line, &room, file) > 0 && strncmp(line, "Name:", 5) == 0);
    fclose(file);
    do_free(line);
}

int main(void) {
    plain();
    zeroed();
    resized();
    aligned();
    by_libc();
    void *probe = do_malloc(119);
    size_t usable = malloc_usable_size(probe);
    CHECK(usable == 120); /* glibc's own rounding, exactly */
    do_free(probe);
    CHECK(malloc_usable_size(NULL) == 0);
    say("hooks: %d checks, %d failed\n", checks, failed);
    return failed != 0;
}
