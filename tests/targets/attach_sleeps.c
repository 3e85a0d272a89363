/* Repeatedly allocates 4096 bytes, sleeps where no signal can wake it, and frees them. With a file as its
 * argument it writes the block there and waits for the disk. Without an argument it waits for a child of vfork that
 * lives for three milliseconds. Prints "ready" after the first round, and "right" when stdin ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

static void wait_for_child(void) {
    if (vfork() == 0) {
        usleep(3000);
        _exit(0);
    }
}

int main(int argc, char **argv) {
    int file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (argc > 1 && file < 0) return 1;
    /* The parent does not wait for its children, so the kernel must reap them. */
    signal(SIGCHLD, SIG_IGN);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (int round = 0; poll(&input, 1, 0) == 0; round++) {
        char *block = malloc(4096);
        if (!block) return 1;
        memset(block, round, 4096);
        if (argc == 1)
            wait_for_child();
        else if (pwrite(file, block, 4096, (round % 64) * 4096) != 4096 || fdatasync(file) != 0)
            return 1;
        free(block);
        if (round == 0) say("ready\n");
    }
    say("right\n");
    return 0;
}
