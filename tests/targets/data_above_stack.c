// Allocates 200 blocks of 1000 bytes, each freed at once, on a stack that the program made itself.
// The code that calls the allocating function has no unwind information and uses rbp for data. rbp points into the memory
// right above the stack, at two words that look like a saved rbp and a return address. That memory is unmapped after half
// of the blocks. Prints "done".
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZE = 1 << 16, BLOCKS = 200 };

static char *data;

// Called by `without_cfi`.
__attribute__((noinline, used)) void work(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (i == BLOCKS / 2) munmap(data, SIZE);
        void *volatile block = malloc(1000);
        free(block);
    }
}

void on_stack(void *stack, void *rbp);
__asm__(".text\n"
        "without_cfi:\n"
        "  push %rbp\n"
        "  mov %rdi, %rbp\n"
        "  call work\n"
        "  nop\n"
        "  pop %rbp\n"
        "  ret\n"
        "on_stack:\n"
        "  .cfi_startproc\n"
        "  .cfi_undefined rip\n"
        "  push %rbp\n"
        "  push %rbx\n"
        "  sub $8, %rsp\n"
        "  mov %rsp, %rbx\n"
        "  mov %rdi, %rsp\n"
        "  mov %rsi, %rdi\n"
        "  call without_cfi\n"
        "  mov %rbx, %rsp\n"
        "  add $8, %rsp\n"
        "  pop %rbx\n"
        "  pop %rbp\n"
        "  ret\n"
        "  .cfi_endproc\n");

int main(void) {
    char *stack = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return 1;
    data = stack + SIZE;
    unsigned long *frame = (unsigned long *)(data + 4096);
    frame[0] = 0;
    frame[1] = 0x123456;
    on_stack(data - 64, frame);
    puts("done");
    return 0;
}
