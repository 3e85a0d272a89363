/* Runs a function on a stack that the program made itself. */
#include <stddef.h>
#include <ucontext.h>

/* Returns when `body` has returned. */
static void run_on_stack(char *stack, size_t size, void (*body)(void)) {
    static ucontext_t home, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = size;
    there.uc_link = &home;
    makecontext(&there, body, 0);
    swapcontext(&home, &there);
}
