/* The second instruction of its malloc reads a page that is not readable. The signal handler prints
 * "ready", waits for a line, and makes the page readable. While the handler waits, its return address is
 * in the middle of malloc's first instructions. Then malloc(10) returns, the block is freed, and the program
 * prints "done". For each further line it allocates and frees 10 bytes and prints "done". */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "say.h"

__attribute__((used)) static char page[4096] __attribute__((aligned(4096)));
void __libc_free(void *block);

__asm__(".text\n"
        ".globl malloc\n"
        ".type malloc, @function\n"
        "malloc: nop\n"
        "testb $0, page(%rip)\n"
        "jmp __libc_malloc@PLT\n"
        ".size malloc, . - malloc\n");
void free(void *block) { __libc_free(block); }

static int line(void) {
    char byte;
    while (read(0, &byte, 1) == 1)
        if (byte == '\n') return 1;
    return 0;
}

static void handler(int signal) {
    (void)signal;
    say("ready\n");
    line();
    mprotect(page, sizeof page, PROT_READ);
}

int main(void) {
    signal(SIGSEGV, handler);
    mprotect(page, sizeof page, PROT_NONE);
    do {
        void *block = malloc(10);
        KEEP(block);
        free(block);
        say("done\n");
    } while (line());
    return 0;
}
