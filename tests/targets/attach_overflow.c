/* For each line on stdin: requests more memory than there is, then a block of 9001 bytes, which stays, and prints "done". */
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
