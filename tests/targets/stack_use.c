/* Measures the stack that malloc, realloc and free use. It switches to a stack of 64 KB that is filled with a
 * pattern, calls malloc(70), realloc to 700 and free, and looks how far the pattern was overwritten. It does this at 200
 * depths, so that both remembered and new stacks occur, and prints the highest use at any depth but the first:
 * `bytes=N`. The calls that cause lazy binding and heaptrack's start are made before. With an argument it first prints
 * "ready" and waits for a byte on stdin. */
#define _GNU_SOURCE
#include <stdlib.h>
#include "painted_stack.h"
#include "say.h"

static int depth_wanted;
static size_t most;

NOINLINE static void call(int depth) {
    if (depth > 0) {
        call(depth - 1);
    } else {
        char here;
        lowest_sp = &here;
        void *made = malloc(70);
        KEEP(made);
        made = realloc(made, 700);
        KEEP(made);
        free(made);
    }
    FRAME();
}

static void body(void) { call(depth_wanted); }

int main(int argc, char **argv) {
    (void)argv;
    call(3);
    /* Wait until heaptrack is attached. */
    if (argc > 1) {
        say("ready\n");
        char byte;
        if (read(0, &byte, 1) != 1) return 1;
        call(3);
    }
    for (int i = 0; i < 200; i++) {
        depth_wanted = i;
        size_t used = stack_used_by(body);
        if (i > 0 && used > most) most = used;
    }
    say("bytes=%zu\n", most);
    return 0;
}
