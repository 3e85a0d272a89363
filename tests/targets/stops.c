/* Prints "ready". For the number of milliseconds in the argument (1000) it allocates and frees blocks of 128 bytes, with a pause of 50 us
 * after each 100. Then it prints "time is up rounds=N". At SIGTERM it prints "terminated rounds=N" and returns 9. At SIGUSR1 it prints
 * "usr1". N is the number of blocks. For tests of signals, growing files and a stopped collector. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "say.h"
static volatile sig_atomic_t ended;
static void term(int signal) { (void)signal; ended = 1; }
static void usr1(int signal) { (void)signal; if (write(1, "usr1\n", 5) < 0) _exit(98); }
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
int main(int argc, char **argv) {
    signal(SIGTERM, term);
    signal(SIGUSR1, usr1);
    long until = now() + (argc > 1 ? atol(argv[1]) : 1000), rounds = 0;
    say("ready\n");
    while (!ended && now() < until) {
        for (int i = 0; i < 100; i++, rounds++) {
            void *made = malloc(128);
            KEEP(made);
            free(made);
        }
        usleep(50);
    }
    say("%s rounds=%ld\n", ended ? "terminated" : "time is up", rounds);
    return ended ? 9 : 0;
}
