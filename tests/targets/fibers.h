/* Hand-made coroutines. The outermost return address of each stack is 0, as in Ruby and many other runtimes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Saves the callee-saved registers on the current stack and the stack pointer in `*from`. Then continues on the stack `to`. */
void fiber_switch(void **from, void *to);
__asm__(".globl fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        ".cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\npush %rbx\n.cfi_def_cfa_offset 24\npush %r12\n.cfi_def_cfa_offset 32\n"
        "push %r13\n.cfi_def_cfa_offset 40\npush %r14\n.cfi_def_cfa_offset 48\npush %r15\n.cfi_def_cfa_offset 56\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size fiber_switch, .-fiber_switch\n");

/* Writes what `fiber_switch` expects on a new stack: six registers, the entry point, and a return address of zero. Returns the
 * stack pointer to pass to `fiber_switch`. */
static inline void *fiber_start(char *top, void (*body)(void)) {
    uintptr_t *sp = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = 0;
    *--sp = (uintptr_t)body;
    for (int i = 0; i < 6; i++)
        *--sp = 0;
    return sp;
}

static inline char *fiber_stack(size_t size) {
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return stack;
}
