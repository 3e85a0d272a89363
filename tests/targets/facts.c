/* Prints what a program can see of its surroundings: arguments, environment, open files, signal dispositions and mask, limits,
 * umask, priority, working directory, threads, children, dumpable state, seccomp, no_new_privs, parent-death signal, session, process
 * group and terminals. Being recorded must change none of it. Returns 42. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "say.h"

extern char **environ;

static void files(void) {
    for (int fd = 0; fd < 1024; fd++) {
        char link[64], name[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, name, sizeof name - 1);
        if (length < 0) continue;
        name[length] = 0;
        /* A pipe's number differs from run to run. Only the fact that it is a pipe is printed. */
        name[strcspn(name, "[")] = 0;
        say("fd %d %s\n", fd, name);
    }
}

static int entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    if (!directory) return -1;
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) say("argument %s\n", argv[i]);
    for (char **entry = environ; *entry; entry++) say("environment %s\n", *entry);
    files();
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0) continue;
        if (action.sa_handler != SIG_DFL)
            say("signal %d %s\n", signal, action.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&mask, signal) == 1) say("signal %d blocked\n", signal);
    for (int limit = 0; limit < RLIM_NLIMITS; limit++) {
        struct rlimit value;
        getrlimit(limit, &value);
        say("limit %d %lld %lld\n", limit, (long long)value.rlim_cur, (long long)value.rlim_max);
    }
    mode_t mask_now = umask(0);
    umask(mask_now);
    char where[PATH_MAX];
    say("umask %o nice %d cwd %s\n", mask_now, getpriority(PRIO_PROCESS, 0), getcwd(where, sizeof where) ? where : "?");
    say("threads %d children %d\n", entries("/proc/self/task"), waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1);
    say("dumpable %d seccomp %d no_new_privs %d pdeathsig ", prctl(PR_GET_DUMPABLE),
        prctl(PR_GET_SECCOMP), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int death = -1;
    prctl(PR_GET_PDEATHSIG, &death);
    say("%d\n", death);
    say("session leader %d group leader %d tty %d\n", getsid(0) == getpid(), getpgrp() == getpid(), isatty(0) + isatty(1) + isatty(2));
    return 42;
}
