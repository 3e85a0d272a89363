/* Forks a child that forks before it allocates anything, as programs do that become a daemon, and then two more children. Each
 * process keeps blocks of one size: the first process 1 of 100 bytes, the child of the child 2 of 200, the child 3 of 300 when that
 * has ended, the next child 4 of 400 and the last one 5 of 500. Prints the pids in the order of the sizes. */
#include <stdlib.h>
#include <sys/wait.h>
#include "say.h"

static void keep(int count) {
    say("%d ", getpid());
    for (int i = 0; i < count; i++) KEEP(malloc(100 * count));
}

int main(void) {
    keep(1);
    for (int child = 0; child < 3; child++) {
        if (fork() == 0) {
            if (child == 0) {
                if (fork() == 0) {
                    keep(2);
                    _exit(0);
                }
                wait(0);
            }
            keep(3 + child);
            _exit(0);
        }
        wait(0);
    }
    say("\n");
    return 0;
}
