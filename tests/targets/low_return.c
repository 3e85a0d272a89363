/* Allocates three blocks of 93 bytes, each freed, in a function without unwind information. The function uses rbp as an
 * ordinary register, so the word where a return address is expected is the number 1. Prints "done". */
#include <stdlib.h>
#include "say.h"

void *without_cfi(unsigned long size);
__asm__(".text\n"
        ".globl without_cfi\n"
        "without_cfi:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    mov %rsp, %rbx\n"
        "    sub $40, %rsp\n"
        "    lea 8(%rsp), %rbp\n"
        "    movq $0, (%rbp)\n"
        "    movq $1, 8(%rbp)\n"
        "    call malloc@PLT\n"
        "    mov %rbx, %rsp\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n");

int main(void) {
    for (int i = 0; i < 3; i++) free(without_cfi(93));
    say("done\n");
    return 0;
}
