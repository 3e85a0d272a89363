/* Measures how much stack a call uses. A function runs on a stack of 64 KB that is filled with a pattern. The bytes that
 * still have the pattern afterwards were not used. */
#include <string.h>
#include "own_stack.h"

#define PAINT 0xa5

/* The function that is measured sets this to its own stack pointer before the call. */
static char *lowest_sp;

/* Runs `body` on the painted stack, and returns the number of bytes that it used below `lowest_sp`. */
static size_t stack_used_by(void (*body)(void)) {
    static char stack[65536] __attribute__((aligned(16)));
    memset(stack, PAINT, sizeof stack);
    run_on_stack(stack, sizeof stack, body);
    char *unused = stack;
    while (*unused == (char)PAINT) unused++;
    return (size_t)(lowest_sp - unused);
}
