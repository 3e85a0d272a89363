/* A program without any library (-nostdlib -static) that unmaps the kernel's vDSO and waits to be killed. It has no
 * malloc and prints nothing. With -DCALLS it has instructions with which heaptrack can make it call the kernel. */
#define SYS_munmap 11
#define SYS_pause 34
#define AT_SYSINFO_EHDR 33

#ifdef CALLS
__asm__("syscall\n ret\n pop %rax\n ret\n");
#endif

static long call(long number, unsigned long first, unsigned long second) {
    long result;
    __asm__ volatile("syscall\n nop" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
    return result;
}

__attribute__((used)) static void begin(unsigned long *stack) {
    unsigned long *word = stack + 1 + stack[0] + 1;
    while (*word++) {
    }
    for (; word[0]; word += 2)
        if (word[0] == AT_SYSINFO_EHDR) call(SYS_munmap, word[1], 2 * 4096);
    for (;;) call(SYS_pause, 0, 0);
}
__asm__(".globl _start\n _start: mov %rsp, %rdi\n call begin\n");
