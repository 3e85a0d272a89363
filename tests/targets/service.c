/*
 * A service as it runs in a container. It keeps 30 of 100 blocks of 500 bytes and starts a daemon whose parent has ended. It prints
 * "ready DAEMON" (the daemon's pid), then "got N" for each signal with number N. At SIGTERM it frees 20 more blocks and ends with 42.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>

static pid_t daemonise(void) {
    int ends[2];
    pid_t daemon = 0;
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            sigset_t none;
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            setsid();
            for (;;) {
                pause();
            }
        }
        _exit(write(ends[1], &grandchild, sizeof grandchild) == sizeof grandchild ? 0 : 1);
    }
    if (read(ends[0], &daemon, sizeof daemon) != sizeof daemon) {
        return -1;
    }
    waitpid(child, NULL, 0);
    return daemon;
}

int main(void) {
    void *blocks[100];
    sigset_t all;
    int signal;
    sigfillset(&all);
    sigdelset(&all, SIGCHLD);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < 100; i++) {
        blocks[i] = malloc(500);
    }
    for (int i = 30; i < 100; i++) {
        free(blocks[i]);
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("ready %d\n", (int)daemonise());
    while (sigwait(&all, &signal) == 0) {
        printf("got %d\n", signal);
        if (signal == SIGTERM) {
            break;
        }
    }
    for (int i = 0; i < 20; i++) {
        free(blocks[i]);
    }
    exit(42);
}
