/* Its only thread runs on a stack in the program's static data. Keeps 10 bytes, prints "ready", then "done" for each line on stdin. */
#define _GNU_SOURCE
#include <stdlib.h>
#include "own_stack.h"
#include "say.h"

static char stack[1 << 20] __attribute__((aligned(16)));

static void body(void) {
    char byte;
    KEEP(malloc(10));
    say("ready\n");
    while (read(0, &byte, 1) == 1)
        if (byte == '\n') say("done\n");
}

int main(void) {
    run_on_stack(stack, sizeof stack, body);
    return 0;
}
