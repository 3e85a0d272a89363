/* Argument: the number of blocks (1000). Allocates them with 16 to 1015 bytes at ten depths and frees each after 5000 more, or at the
 * end. So there are twice as many events as blocks. None of its own blocks is left. Prints nothing. */
#include <stdlib.h>
#include "say.h"

static void *kept[5000];

NOINLINE static void *deeper(int depth, size_t size) {
    void *made = depth > 0 ? deeper(depth - 1, size) : malloc(size);
    FRAME();
    return made;
}

int main(int argc, char **argv) {
    long blocks = argc > 1 ? atol(argv[1]) : 1000;
    for (long n = 0; n < blocks; n++) {
        void **place = &kept[n % 5000];
        free(*place);
        *place = deeper((int)(n % 10), 16 + (size_t)(n * 7919 % 1000));
    }
    for (int n = 0; n < 5000; n++) free(kept[n]);
    return 0;
}
