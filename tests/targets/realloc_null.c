/* Makes 1000 blocks of 5001 bytes with realloc(NULL, 5001), resizes each to 5002 bytes, and frees it. Prints "done". */
#include <stdlib.h>
#include "say.h"

/* A compiler makes a malloc of `realloc(NULL, size)`. */
static void *volatile nothing;

int main(void) {
    for (int i = 0; i < 1000; i++) {
        void *block = realloc(nothing, 5001);
        KEEP(block);
        block = realloc(block, 5002);
        KEEP(block);
        free(block);
    }
    say("done\n");
    return 0;
}
