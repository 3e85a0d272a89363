/* A library that comes before libc's allocator in the lookup order. Its malloc and free count their
 * calls and call the next definition in that order. Its calloc and realloc jump to libc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static void *(*make)(size_t);
static void (*drop)(void *);
long calls, returns;

__attribute__((constructor)) static void begin(void) {
    make = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    drop = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

void *malloc(size_t size) {
    calls++;
    void *block = make ? make(size) : __libc_malloc(size);
    returns++;
    return block;
}

void free(void *block) {
    calls++;
    if (drop) drop(block);
    else __libc_free(block);
    returns++;
}

void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
