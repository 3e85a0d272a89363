/* Ten times: one more block of 1000 bytes from keep(), then SIGUSR1 to itself, without a pause. Then SIGUSR2
 * and SIGQUIT without a pause, 1000 bytes, SIGQUIT, 5 bytes. heaptrace must report 1 to 10 blocks sorted by size, then 10
 * blocks sorted by count, and at the end 5 bytes. With an argument N: N times instead of ten, and nothing after that. */
#include <signal.h>
#include <stdlib.h>
#include "say.h"

NOINLINE static void keep(size_t size) {
    void *made = malloc(size);
    KEEP(made);
    FRAME();
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    for (int i = 0; i < times; i++) {
        keep(1000);
        raise(SIGUSR1);
    }
    if (argc > 1) return 0;
    raise(SIGUSR2);
    raise(SIGQUIT);
    keep(1000);
    raise(SIGQUIT);
    keep(5);
    return 0;
}
