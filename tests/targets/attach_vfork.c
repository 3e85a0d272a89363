/* Keeps 10 bytes. For a line on stdin it makes a child by vfork, which prints "ready" and waits for another
 * line. Until that line comes, the parent cannot be stopped. Then the parent prints "done". */
#define _GNU_SOURCE
#include <stdlib.h>
#include "say.h"

static int line(void) {
    char byte;
    while (read(0, &byte, 1) == 1)
        if (byte == '\n') return 1;
    return 0;
}

int main(void) {
    KEEP(malloc(10));
    while (line()) {
        if (vfork() == 0) {
            if (write(1, "ready\n", 6) != 6) _exit(1);
            line();
            _exit(0);
        }
        say("done\n");
    }
    return 0;
}
