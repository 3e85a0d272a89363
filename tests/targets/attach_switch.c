/* A coroutine that is suspended in the middle of malloc, because the allocator itself (libown.cpp) switches
 * to another stack. Prints "ready". For the first line on stdin the coroutine begins and calls malloc(9002), which
 * switches back to main, and main prints "inside". For the second line this malloc returns, and the coroutine prints
 * "done". Its stack is a mapping of its own, outside of the thread's stack. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "say.h"

extern void (*own_malloc_calls)(void);
static ucontext_t outside, inside;

static void leave(void) {
    swapcontext(&inside, &outside);
}

static void run(void) {
    own_malloc_calls = leave;
    char *block = malloc(9002);
    if (!block) _exit(1);
    block[9001] = 1;
    KEEP(block);
    say("done\n");
}

int main(void) {
    const size_t size = 4 << 20;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return 1;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = size;
    inside.uc_link = &outside;
    makecontext(&inside, run, 0);
    say("ready\n");
    char byte;
    for (int line = 0; read(0, &byte, 1) == 1;) {
        if (byte != '\n' || ++line > 2) continue;
        swapcontext(&outside, &inside);
        if (line == 1) say("inside\n");
    }
    return 0;
}
