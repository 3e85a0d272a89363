/* Executes a program that reads its stdin to the end: in a child that has called nothing, in a child that has a block of its own, and at last
 * in its own process. Usage: unrecorded_execs PROGRAM, with its whole path.
 *
 * Blocks: 8,000,000 bytes, inherited by both children; 1,000,000 bytes of the second child; 7,000,000 bytes after the first block was freed,
 * a second after both children have executed the program. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "say.h"

static char *program;

static void execute(void) {
    execl(program, program, (char *)0);
    _exit(9);
}

/* Returns the end of a pipe that ends the program when it is closed. */
static int start(size_t own) {
    int ends[2];
    if (pipe(ends)) _exit(8);
    int pid = fork();
    if (pid == 0) {
        dup2(ends[0], 0);
        close(ends[0]), close(ends[1]);
        if (own) KEEP(malloc(own));
        execute();
    }
    close(ends[0]);
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    for (ssize_t length = 0;; usleep(1000)) {
        length = readlink(link, path, sizeof path);
        if (length == (ssize_t)strlen(program) && memcmp(path, program, (size_t)length) == 0) return ends[1];
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    program = argv[1];
    void *first = malloc(8000000);
    KEEP(first);
    int silent = start(0);
    /* The second child must not have this end. */
    dup2(silent, 100), close(silent);
    int other = start(1000000);
    sleep(1);
    free(first);
    KEEP(malloc(7000000));
    close(other);
    close(100);
    while (wait(0) > 0) {}
    execute();
}
