/* A part of `twins`, under any file name. MAKE, a name that other files may have too, must be called COUNT times for SIZE bytes. */
#include <stdlib.h>

static void *volatile kept;

static void MAKE(void) {
    void *block = malloc(SIZE);
    if (!block) abort();
    kept = block;
}

const struct {
    void (*make)(void);
    int count;
} ENTRY = {MAKE, COUNT};
