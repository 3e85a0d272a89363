/* An allocator in its own library, as jemalloc is. It has an atomic bump pointer, so it may be called in a signal handler
 * (glibc's may not, with or without heaptrack). free does nothing and memory is never reused, so it is only for small tests. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA ((size_t)1 << 32)
static _Atomic(char *) next;

static char *arena(void) {
    char *now = atomic_load(&next);
    if (now) return now;
    char *made = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!atomic_compare_exchange_strong(&next, &now, made)) munmap(made, ARENA);
    return atomic_load(&next);
}

/* All entries call this one function. A call of `memalign` from here would be bound to a library that interposes
 * `memalign`, so the block would be counted twice. */
static void *take(size_t alignment, size_t size) {
    if (size > ARENA / 4) return errno = ENOMEM, NULL;
    if (alignment < 16) alignment = 16;
    char *now = arena(), *block;
    do block = (char *)(((uintptr_t)now + 16 + alignment - 1) & ~(alignment - 1));
    while (!atomic_compare_exchange_weak(&next, &now, block + size));
    ((size_t *)block)[-1] = size;
    return block;
}
void *memalign(size_t alignment, size_t size) { return take(alignment, size); }
void *malloc(size_t size) { return take(16, size); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) return errno = ENOMEM, NULL;
    return take(16, total); /* the arena is zero and never reused */
}
void *realloc(void *old, size_t size) {
    void *block = take(16, size);
    if (old && block) memcpy(block, old, ((size_t *)old)[-1] < size ? ((size_t *)old)[-1] : size);
    return block;
}
size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
