/* Counts the calls of libc's allocation functions, as an oracle that shares no code with heaptrack. Preloaded with
 * LD_PRELOAD. At exit it writes to a file, whose name is that in COUNT_FILE with a point and the process's number: the calls that
 * returned a block, and the calls that freed one. A realloc of a block counts as both. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long made, freed;

static void *new_block(void *block) {
    if (block)
        made++;
    return block;
}

void *malloc(size_t size) { return new_block(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return new_block(__libc_calloc(count, size)); }
void *memalign(size_t align, size_t size) { return new_block(__libc_memalign(align, size)); }
void *aligned_alloc(size_t align, size_t size) { return new_block(__libc_memalign(align, size)); }

int posix_memalign(void **out, size_t align, size_t size) {
    int before = errno;
    void *block = new_block(__libc_memalign(align, size));
    errno = before;
    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}

void *realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, size);
    if (old && (block || size == 0))
        freed++;
    return new_block(block);
}

void free(void *block) {
    if (block)
        freed++;
    __libc_free(block);
}

__attribute__((destructor)) static void report(void) {
    long counts[2] = {made, freed};
    char path[4096];
    const char *name = getenv("COUNT_FILE");
    snprintf(path, sizeof path, "%s.%d", name ? name : "count", getpid());
    FILE *file = name ? fopen(path, "w") : NULL;
    if (file)
        fprintf(file, "%ld %ld\n", counts[0], counts[1]), fclose(file);
}
