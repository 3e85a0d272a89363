/* Measures the stack that the first malloc of a forked child uses. It switches to a stack of 64 KB that is
 * filled with a pattern, makes the call, and counts the bytes that still have the pattern. Prints `bytes=N`. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "say.h"

#define SIZE 65536
static char stack[SIZE] __attribute__((aligned(16)));
static ucontext_t home, there;
static char *lowest_sp;

static void body(void) {
    char here;
    lowest_sp = &here;
    void *made = malloc(70);
    KEEP(made);
}

int main(void) {
    /* Lazy binding is done before. */
    void *first = malloc(70);
    KEEP(first);
    pid_t pid = fork();
    if (pid == 0) {
        memset(stack, 0xa5, SIZE);
        getcontext(&there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = SIZE;
        there.uc_link = &home;
        makecontext(&there, body, 0);
        swapcontext(&home, &there);
        char *paint = stack;
        while (*paint == (char)0xa5) paint++;
        say("bytes=%zu\n", (size_t)(lowest_sp - paint));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status != 0;
}
