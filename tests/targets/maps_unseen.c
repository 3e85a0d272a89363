// Has 4 MB of zeroed data. Maps 24 MB with mmap, or with a system call of its own if the argument is `syscall`, and touches them. Waits until it is killed.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char zeroed[4 << 20];

int main(int argc, char **argv) {
    size_t size = 24 << 20;
    int how = MAP_PRIVATE | MAP_ANONYMOUS;
    int is_own = argc > 1 && strcmp(argv[1], "syscall") == 0;
    void *memory = is_own ? (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, how, -1, 0)
                          : mmap(NULL, size, PROT_READ | PROT_WRITE, how, -1, 0);
    memset(memory, 1, size);
    memset(zeroed, 1, sizeof zeroed);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
