/* Prints 1 or 0 for each of five allocator functions: whether it finds them by weak references and by dlsym. It has no C++ and no
   allocator but libc's, so it finds none. If it is linked with libstdc++, it finds operator new and prints which library has it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include "say.h"

extern void *mallocx(size_t, int) __attribute__((weak));
extern void sdallocx(void *, size_t, int) __attribute__((weak));
extern void *tc_malloc(size_t) __attribute__((weak));
extern void *mi_malloc(size_t) __attribute__((weak));
extern void *_Znwm(size_t) __attribute__((weak));

int main(void) {
    say("weak %d %d %d %d %d\n", mallocx != NULL, sdallocx != NULL, tc_malloc != NULL, mi_malloc != NULL, _Znwm != NULL);
    const char *names[] = {"mallocx", "sdallocx", "tc_malloc", "mi_malloc", "_Znwm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        say("%s %d\n", names[i], dlsym(RTLD_DEFAULT, names[i]) != NULL);
    Dl_info where;
    if (_Znwm && dladdr((void *)_Znwm, &where)) {
        const char *slash = strrchr(where.dli_fname, '/');
        /* If jemalloc is loaded and recorded, heaptrack's operator is found instead, so nothing is printed. */
        if (!mallocx) say("operator new is in %s\n", slash ? slash + 1 : where.dli_fname);
    }
    return 0;
}
