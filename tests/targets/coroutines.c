/* 50 coroutines (swapcontext) on 8 KB stacks, each ten calls of `level` deep, take turns 20 times. Each turn allocates
 * 210 bytes in the tenth `level`; every tenth block is kept. Own blocks: 1000 allocations of 210 bytes, 100 left (21000
 * bytes). A recorded stack must have exactly ten frames of `level`, called by `body`, and none of another coroutine.
 * Prints "coroutines 50 turns 1000". */
#define _GNU_SOURCE
#include <stdlib.h>
#include <ucontext.h>
#include "say.h"

#define COROUTINES 50
static ucontext_t main_context, context[COROUTINES];
static char stacks[COROUTINES][8192] __attribute__((aligned(16)));
static int current, done;
static int turns_taken;

NOINLINE static void level(int depth) {
    if (depth < 10) {
        level(depth + 1);
    } else {
        for (int turn = 0; turn < 20; turn++) {
            void *made = malloc(200 + (size_t)depth);
            KEEP(made);
            if (turns_taken++ % 10) free(made);
            swapcontext(&context[current], &main_context);
        }
    }
    FRAME();
}

static void body(void) {
    level(1);
    done++;
}

int main(void) {
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&context[i]);
        context[i].uc_stack.ss_sp = stacks[i];
        context[i].uc_stack.ss_size = sizeof stacks[i];
        context[i].uc_link = &main_context;
        makecontext(&context[i], body, 0);
    }
    for (int turn = 0; turn < 21; turn++)
        for (current = 0; current < COROUTINES; current++) swapcontext(&main_context, &context[current]);
    say("coroutines %d turns %d\n", done, turns_taken);
    return done == COROUTINES ? 0 : 1;
}
