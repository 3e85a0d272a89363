// 20,000 mappings of 512 kB, 10 GB in all, resident and different from their neighbours, so that the kernel does not join them. They are the same 64 MB of
// shared memory again and again, so the machine needs no 10 GB. Prints "ready" and waits.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (512 << 10)

int main(void) {
    int file = memfd_create("wide", 0);
    if (file < 0 || ftruncate(file, 64 << 20) < 0)
        return 2;
    volatile long sum = 0;
    for (long i = 0; i < 20000; i++) {
        int access = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        char *at = mmap(NULL, SIZE, access, MAP_SHARED | MAP_POPULATE, file, i % 128 * SIZE);
        if (at == MAP_FAILED)
            return 3;
        for (long offset = 0; offset < SIZE; offset += 4096)
            sum += at[offset];
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
