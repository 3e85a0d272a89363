/* Forks the number of children in argument 1, all at once. Each allocates 1000 + i bytes and has a child of its own
 * that allocates 2000 + i bytes. No process frees. With the second argument "late", children allocate only after all
 * were forked and the parent has allocated, too. The parent keeps 500 bytes. All end with code 0, the parent last. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "say.h"

__attribute__((noinline)) static void keep(size_t size) {
    void *made = malloc(size);
    KEEP(made);
}

static int wait_for_all(void) {
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 1;
    int go[2];
    int late = argc > 2 && strcmp(argv[2], "late") == 0;
    if (pipe(go) != 0) return 2;
    for (int i = 0; i < children; i++) {
        if (fork() == 0) {
            char byte;
            close(go[1]);
            if (late && read(go[0], &byte, 1) != 0) _exit(3);
            keep(1000 + (size_t)i);
            if (fork() == 0) {
                keep(2000 + (size_t)i);
                _exit(0);
            }
            _exit(wait_for_all());
        }
    }
    keep(500);
    close(go[1]);
    return wait_for_all();
}
