/* The peak is reached once: foo holds 100 bytes and bar 25 at that moment. Later 124 bytes are
 * live, one less, so a reader that takes the last maximum or the second largest one is wrong. Prints "peak done".
 *
 * From the program's own code: 5 allocations of 100, 25, 60, 64, 10 bytes = 259; peak 125 bytes in 2 blocks (foo 100,
 * bar 25); left 1 block of 10 bytes. */
#include <stdlib.h>
#include "say.h"

NOINLINE static void *foo(void) { void *p = malloc(100); FRAME(); return p; }
NOINLINE static void *bar(void) { void *p = malloc(25); FRAME(); return p; }
NOINLINE static void *low(size_t n) { void *p = malloc(n); FRAME(); return p; }

int main(void) {
    void *first = foo(), *second = bar();
    free(first);
    free(second);
    first = low(60), second = low(64);
    free(first);
    free(second);
    KEEP(low(10));
    say("peak done\n");
    return 0;
}
