/* A timer's signal handler allocates while main allocates. Links libbump.so, whose malloc may be interrupted anywhere.
 * Arguments: main's allocations (200000), and "jump" to leave the handler by siglongjmp each third time.
 *
 * main calls malloc(64) and free, the handler three times malloc(33) and free. Each counts an allocation after malloc returned. Prints
 *   main=M handler=H jumped=J
 * A jump may leave a call of main unfinished, so with jumps M <= allocations of main in the trace <= M + J. Without jumps the trace
 * has exactly M and H. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include "say.h"

static volatile long in_main, in_handler, jumped;
static volatile sig_atomic_t may_jump;
static int jumps;
static sigjmp_buf back;

NOINLINE static void handle(int signal) {
    (void)signal;
    for (int i = 0; i < 3; i++) {
        void *made = malloc(33);
        KEEP(made);
        in_handler++;
        free(made);
    }
    if (jumps && may_jump && in_handler % 9 == 0) {
        jumped++;
        siglongjmp(back, 1);
    }
}

NOINLINE static void *allocate(void) {
    void *made = malloc(64);
    FRAME();
    return made;
}

int main(int argc, char **argv) {
    long wanted = argc > 1 ? atol(argv[1]) : 200000;
    jumps = argc > 2 && !strcmp(argv[2], "jump");
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 200}, {0, 200}};
    sigsetjmp(back, 1);
    may_jump = 1;
    setitimer(ITIMER_REAL, &every, NULL);
    while (in_main < wanted || in_handler < 30) {
        void *made = allocate();
        in_main++;
        free(made);
    }
    may_jump = 0;
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    say("main=%ld handler=%ld jumped=%ld\n", in_main, in_handler, jumped);
    return 0;
}
