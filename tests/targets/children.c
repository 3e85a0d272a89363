/* Makes children by fork, vfork and execv, posix_spawn, fork and execvpe, system, and fork in a thread. A child allocates 100
 * blocks of 2002 bytes, none of which is in the trace, prints how many variables of heaptrack its environment has (it must
 * have none) and LD_PRELOAD, and ends with code 7. Parent, by size: 1001 once, freed after the children; 11 once in the
 * thread, left; 3003 once at the end, left; none of 2002. It prints "parent done". */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "say.h"

extern char **environ;
static char *self;

static int child(const char *way) {
    for (int i = 0; i < 100; i++) {
        void *made = malloc(2002);
        KEEP(made);
        if (i % 2) free(made);
    }
    int traces = 0;
    for (char **entry = environ; *entry; entry++) traces += strstr(*entry, "HEAPTRACK") != NULL;
    say("%s: %d variables of ours, LD_PRELOAD=%s\n", way, traces, getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "(none)");
    return 7;
}

static void reap(pid_t pid, const char *way) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        say("%s: status %d\n", way, status);
}

static void *fork_in_thread(void *unused) {
    (void)unused;
    KEEP(malloc(11));
    pid_t pid = fork();
    if (pid == 0) _exit(child("fork in thread"));
    reap(pid, "fork in thread");
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argv[1]);
    self = argv[0];
    void *first = malloc(1001);
    KEEP(first);
    pid_t pid = fork();
    if (pid == 0) exit(child("fork"));
    reap(pid, "fork");

    char *arguments[] = {self, "vfork", NULL};
    pid = vfork();
    if (pid == 0) {
        execv(self, arguments);
        _exit(1);
    }
    reap(pid, "vfork");

    arguments[1] = "posix_spawn";
    if (posix_spawn(&pid, self, NULL, NULL, arguments, environ) != 0) return 1;
    reap(pid, "posix_spawn");

    arguments[1] = "fork and execvpe";
    pid = fork();
    if (pid == 0) {
        execvpe(self, arguments, environ);
        _exit(1);
    }
    reap(pid, "fork and execvpe");

    char command[4096];
    snprintf(command, sizeof command, "'%s' system", self);
    int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) say("system: status %d\n", status);

    pthread_t thread;
    pthread_create(&thread, NULL, fork_in_thread, NULL);
    pthread_join(thread, NULL);

    free(first);
    KEEP(malloc(3003));
    say("parent done\n");
    return 0;
}
