/* A part of `twins`, which tests copy to several file names. It defines the function MAKE, whose name other parts may have, too. `twins` calls
   it COUNT times. Each call allocates SIZE bytes and keeps them. */
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
