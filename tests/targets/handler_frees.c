/* A timer's signal handler frees blocks that main allocates, mostly while main is in another call.
 * Links libbump.so, whose malloc may be interrupted anywhere.
 *
 * main repeats this until the handler has freed 1000 blocks: malloc(48), then up to 100 short-lived blocks of 32 bytes, until the
 * handler has freed that block. If the handler has not freed it by then, main does. If there is a block of 48 bytes, the
 * handler frees it and then allocates and frees three blocks of 33 bytes. Prints main=M handler=H short=S: M blocks of 48 bytes, of
 * which the handler freed H, and S of 32. Every block is freed once. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include "say.h"

static _Atomic(void *) handed;
static volatile long in_main, in_handler, short_lived;

NOINLINE static void handle(int signal) {
    (void)signal;
    void *block = atomic_exchange(&handed, NULL);
    if (!block) return;
    free(block);
    in_handler++;
    for (int i = 0; i < 3; i++) {
        void *made = malloc(33);
        KEEP(made);
        free(made);
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &every, NULL);
    while (in_handler < 1000) {
        atomic_store(&handed, malloc(48));
        in_main++;
        for (int i = 0; i < 100 && atomic_load(&handed); i++) {
            void *made = malloc(32);
            KEEP(made);
            short_lived++;
            free(made);
        }
        void *block = atomic_exchange(&handed, NULL);
        if (block) free(block);
    }
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    say("main=%ld handler=%ld short=%ld\n", in_main, in_handler, short_lived);
    return 0;
}
