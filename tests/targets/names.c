/* Prints 1 or 0 for allocation functions: whether it finds libc's by weak references, and the functions that are named as arguments
   by dlsym. It calls none of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include "say.h"

/* As data, because the compiler assumes that the functions it knows exist. */
#define WEAK(name) extern char weak_##name[] __asm__(#name) __attribute__((weak))
WEAK(malloc);
WEAK(calloc);
WEAK(realloc);
WEAK(reallocarray);
WEAK(posix_memalign);
WEAK(aligned_alloc);
WEAK(memalign);
WEAK(valloc);
WEAK(pvalloc);
WEAK(free);
WEAK(cfree);
WEAK(free_sized);
WEAK(free_aligned_sized);

int main(int argc, char **argv) {
#define FOUND(name) say("weak " #name " %d\n", weak_##name != NULL)
    FOUND(malloc);
    FOUND(calloc);
    FOUND(realloc);
    FOUND(reallocarray);
    FOUND(posix_memalign);
    FOUND(aligned_alloc);
    FOUND(memalign);
    FOUND(valloc);
    FOUND(pvalloc);
    FOUND(free);
    FOUND(cfree);
    FOUND(free_sized);
    FOUND(free_aligned_sized);
    for (int i = 1; i < argc; i++)
        say("%s %d\n", argv[i], dlsym(RTLD_DEFAULT, argv[i]) != NULL);
    return 0;
}
