/* Jumps by longjmp over frames that allocated. The next call puts other functions on the same part of the stack,
 * where a remembered stack would be wrong. 100 rounds: `left` -> `bottom` allocates 10 bytes and jumps, `right` ->
 * `bottom` allocates 20 and returns. By size: 100 of 10 called from `left`, 100 of 20 called from `right`. None is
 * freed. Prints "jumped 100". */
#include <setjmp.h>
#include <stdlib.h>
#include "say.h"

static jmp_buf back;

NOINLINE static void bottom(size_t size, int jump) {
    KEEP(malloc(size));
    if (jump) longjmp(back, 1);
    FRAME();
}
NOINLINE static void left(void) { bottom(10, 1); FRAME(); }
NOINLINE static void right(void) { bottom(20, 0); FRAME(); }

int main(void) {
    volatile int jumped = 0;
    for (volatile int i = 0; i < 100; i++) {
        if (setjmp(back) == 0) left();
        else jumped++;
        right();
    }
    say("jumped %d\n", jumped);
    return 0;
}
