/* Survives a stack overflow. A recursion overflows the stack, and the SIGSEGV handler runs on an alternate stack of
 * 16 KB, allocates 77 bytes there and jumps back. This happens five times, and after each main allocates 78 bytes.
 * By size: 5 of 77 (left 5), 5 of 78 (left 0). A handler's stack in the trace continues past the signal frame into
 * the recursion. Prints "survived 5". */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "say.h"

static sigjmp_buf back;
static char alternate[16384];

NOINLINE static void handle(int signal) {
    (void)signal;
    KEEP(malloc(77));
    siglongjmp(back, 1);
}

NOINLINE static int overflow(int depth) {
    volatile char held[4000];
    held[depth % 4000] = (char)depth;
    int below = depth < 1 << 30 ? overflow(depth + 1) : 0;
    FRAME();
    return held[depth % 4000] + below;
}

int main(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    volatile int survived = 0;
    for (volatile int i = 0; i < 5; i++) {
        if (sigsetjmp(back, 1) == 0) {
            say("%d\n", overflow(0));
        } else {
            survived++;
            void *made = malloc(78);
            KEEP(made);
            free(made);
        }
    }
    say("survived %d\n", survived);
    return survived == 5 ? 0 : 1;
}
