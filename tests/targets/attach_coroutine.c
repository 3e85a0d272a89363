/* Its only thread is on a stack that it made in its own data. Prints "ready", then "done" for each line on stdin. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <ucontext.h>
#include "say.h"

static char stack[1 << 20] __attribute__((aligned(16)));
static ucontext_t home, there;

static void body(void) {
    char byte;
    KEEP(malloc(10));
    say("ready\n");
    while (read(0, &byte, 1) == 1)
        if (byte == '\n') say("done\n");
}

int main(void) {
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &home;
    makecontext(&there, body, 0);
    swapcontext(&home, &there);
    return 0;
}
