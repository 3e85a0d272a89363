// Defines mmap and munmap itself, as programs with an allocator of their own do, and uses them. Prints how often they were called.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int maps, unmaps;

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    maps++;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

int munmap(void *address, size_t length) {
    unmaps++;
    return syscall(SYS_munmap, address, length);
}

int main(void) {
    for (int i = 0; i < 100; i++) {
        char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at[0] = 1;
        munmap(at, 4096);
        free(malloc(300000));
    }
    printf("%d %d\n", maps, unmaps);
    return 0;
}
