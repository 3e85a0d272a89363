/* Prints "ready", then the number of each signal that it receives, and after a space the value that was sent with it, if there is one.
 * Ends with exit code 5 after SIGTERM. With an argument it prints "ready", then allocates and frees blocks of 100 bytes without a
 * pause, and ends with exit code 7 after SIGTERM. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include "say.h"

static volatile sig_atomic_t is_over;

static void end(int number) {
    (void)number;
    is_over = 1;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        signal(SIGTERM, end);
        say("ready\n");
        while (!is_over) {
            void *block = malloc(100);
            KEEP(block);
            free(block);
        }
        return 7;
    }
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    say("ready\n");
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(&all, &info);
        if (number < 0) continue;
        if (info.si_code == SI_QUEUE) say("%d %d\n", number, info.si_value.sival_int);
        else say("%d\n", number);
        if (number == SIGTERM) return 5;
    }
}
