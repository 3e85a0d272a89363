/* libblocks.so makes the malloc calls that the tests of the zoo count exactly. No other code in the programs that use
 * it requests blocks of 4321 bytes. zoo_blocks(n) allocates n of them, eight at a time, writes to each, frees all, and
 * returns n. */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) long zoo_blocks(long count) {
    char *held[8];
    for (long done = 0; done < count;) {
        int now = count - done < 8 ? (int)(count - done) : 8;
        for (int i = 0; i < now; i++) {
            held[i] = malloc(4321);
            memset(held[i], i, 4321);
        }
        for (int i = 0; i < now; i++)
            free(held[i]);
        done += now;
    }
    return count;
}
