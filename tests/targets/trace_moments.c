/* Sends itself signals in the middle of its work and continues at once. Live blocks of 100 bytes from keep() at each moment:
 * 10 at SIGUSR1; 12 at SIGUSR2; then 7 more. SIGQUIT starts a new window. Then 4 more, and an old one is freed, so the new window has 4 at
 * the end. Prints nothing. */
#include <signal.h>
#include <stdlib.h>
#include "say.h"

static void *blocks[64];
static int count;

NOINLINE static void keep(int more) {
    while (more-- > 0) blocks[count++] = malloc(100);
    FRAME();
}

NOINLINE static void work(int moment) {
    int more[] = {10, 5, 7, 4};
    keep(more[moment]);
    FRAME();
}

int main(void) {
    int signals[] = {SIGUSR1, SIGUSR2, SIGQUIT};
    for (volatile int moment = 0; moment < 4; moment++) {
        work(moment);
        if (moment == 1)
            for (int i = 0; i < 3; i++) free(blocks[--count]);
        if (moment < 3) raise(signals[moment]);
    }
    free(blocks[0]);
    KEEP(blocks);
    return 0;
}
