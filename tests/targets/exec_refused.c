/* Makes exec calls that the kernel refuses: unreadable pointers, a pipe, a folder. Each call must return as it does without
 * heaptrack, and later allocations are recorded: 7 blocks of 61 bytes, one after each call, all left. The first argument is a
 * folder for the pipe. Prints the error of each call and returns 3. */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *arguments[] = {"x", NULL};
static char *environment[] = {"A=1", NULL};
static char *torn[] = {"A=1", (char *)8, NULL};

static void tell(const char *what) {
    void *block = malloc(61);
    __asm__ volatile("" : : "r"(block) : "memory");
    printf("%s: %s\n", what, strerror(errno));
    fflush(stdout);
}

int main(int argc, char **argv) {
    char pipe[4096];
    pid_t child;
    char *volatile bad = (char *)8, *volatile null = NULL;
    if (argc < 2) return 1;
    snprintf(pipe, sizeof pipe, "%s/pipe", argv[1]);
    if (mkfifo(pipe, 0777) != 0) return 2;
    free(malloc(62));
    execve(bad, arguments, environment);
    tell("bad path");
    execve(null, arguments, environment);
    tell("no path");
    execve("/nonexistent", arguments, (char **)bad);
    tell("bad environment");
    execve("/nonexistent", arguments, torn);
    tell("bad entry");
    execve(pipe, arguments, environment);
    tell("a pipe");
    execve(argv[1], arguments, environment);
    tell("a folder");
    errno = posix_spawn(&child, bad, NULL, NULL, arguments, environment);
    tell("spawn");
    unlink(pipe);
    return 3;
}
