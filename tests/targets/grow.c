/* A list that doubles by realloc from 16 bytes to 1 MiB (1 malloc + 16 reallocs), shrinks to 100 bytes, is freed; and a
 * realloc(NULL, 500) that stays. Each realloc of a live block counts as one deallocation and one allocation.
 *
 * From the program's own code: 19 allocations (16 + 32 + ... + 1048576 = 2097136 bytes, + 100 + 500 = 2097736),
 * 18 deallocations, left 1 block of 500 bytes, maximum 1048576 bytes in 1 block. Prints "grow done". */
#include <stdlib.h>
#include "say.h"

int main(void) {
    size_t size = 16;
    char *list = malloc(size);
    while (size < 1 << 20) {
        size *= 2;
        list = realloc(list, size);
        list[size - 1] = 1;
    }
    list = realloc(list, 100);
    free(list);
    char *kept = realloc(NULL, 500);
    KEEP(kept);
    say("grow done\n");
    return 0;
}
