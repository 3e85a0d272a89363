/* Keeps 10 bytes. For each line on stdin it allocates a block of 9001 bytes, which stays, calls reallocarray on it twice with a
 * product that overflows, so both calls fail, and prints "done". */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include "say.h"

static void *(*volatile grow)(void *, size_t, size_t) = reallocarray;

int main(void) {
    char byte;
    KEEP(malloc(10));
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        void *block = malloc(9001);
        if (!block || grow(block, (size_t)1 << 32, (size_t)1 << 32) || grow(block, SIZE_MAX / 2, 3)) return 1;
        KEEP(block);
        say("done\n");
    }
    return 0;
}
