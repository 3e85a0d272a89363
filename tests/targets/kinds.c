/* One call of each allocating function that DHAT 3.19 also follows, and no realloc of a live block. Only the blocks of calloc and
 * posix_memalign are freed, before getline. Sizes are the requested ones: alignment is not counted. Prints "kinds done".
 *
 * From the program's own code: 5 allocations (calloc 3*100 = 300, posix_memalign 1000, memalign 700, malloc 64,
 * realloc(NULL, 77)), 2141 bytes; one block from strdup (6 bytes, called by libc) and one from getline (120 bytes). */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

int main(void) {
    void *aligned = NULL;
    char *zeroed = calloc(3, 100);
    if (posix_memalign(&aligned, 4096, 1000) != 0) return 1;
    void *other = memalign(64, 700);
    void *block = malloc(64);
    void *again = realloc(NULL, 77);
    char *copy = strdup("hello");
    KEEP(zeroed);
    KEEP(other);
    KEEP(block);
    KEEP(again);
    KEEP(copy);
    free(aligned);
    free(zeroed);
    char *line = NULL;
    size_t room = 0;
    FILE *self = fopen("/dev/null", "r");
    if (self == NULL || getline(&line, &room, self) != -1) return 1;
    KEEP(line);
    say("kinds done\n");
    return 0;
}
