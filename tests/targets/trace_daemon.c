/* Leaves a child process. The parent keeps 100 bytes, prints the child's pid and ends with 4. The
 * child keeps 200 bytes and sleeps until a signal ends it. */
#include <stdlib.h>
#include "say.h"

__attribute__((noinline)) static void keep(size_t size) {
    void *made = malloc(size);
    KEEP(made);
}

int main(void) {
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0) return 1;
    pid_t pid = fork();
    if (pid == 0) {
        keep(200);
        if (write(ready[1], &byte, 1) != 1) return 1;
        close(1);
        for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1) return 1;
    keep(100);
    say("%d\n", (int)pid);
    return 4;
}
