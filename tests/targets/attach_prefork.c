/* A server with workers. Keeps 10 bytes. For a line "N" on stdin it forks N workers, of which every second one forks another, and
 * prints the pids of all these workers in one line. Workers allocate and free blocks of 7001 bytes until they are killed. Without an
 * argument a worker dies with its parent. With a second argument only root can read the memory of workers. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <string.h>
#include "say.h"

static void work(int arguments) {
    if (arguments == 1) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The test reads the output to its end, so a worker must not keep it open. */
    close(1);
    close(2);
    for (;;) {
        char *block = malloc(7001);
        if (!block) _exit(1);
        memset(block, 1, 7001);
        KEEP(block);
        free(block);
        usleep(100);
    }
}

int main(int argc, char **argv) {
    (void)argv;
    KEEP(malloc(10));
    char line[64];
    ssize_t length;
    int pipes[2];
    if (pipe(pipes) != 0) return 1;
    signal(SIGCHLD, SIG_IGN);
    while ((length = read(0, line, sizeof line - 1)) > 0) {
        line[length] = 0;
        int count = atoi(line), total = count + count / 2;
        for (int i = 0; i < count; i++) {
            if (fork() != 0) continue;
            pid_t inner = i % 2 ? fork() : -1;
            pid_t self = getpid();
            if (argc > 2) prctl(PR_SET_DUMPABLE, 0);
            if (write(pipes[1], &self, sizeof self) != sizeof self) _exit(1);
            (void)inner;
            work(argc);
        }
        char text[1024] = "";
        for (int i = 0; i < total; i++) {
            pid_t pid;
            if (read(pipes[0], &pid, sizeof pid) != sizeof pid) return 1;
            snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", pid);
        }
        say("%s\n", text);
    }
    return 0;
}
