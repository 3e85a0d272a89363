/* Counts its finished calls in a file that outlives it, for tests that kill it. Arguments: the file, threads (2), pause in
 * microseconds after each 64 calls (0), calls per thread (0 = until killed).
 *
 * The file is an array of 64-byte lines, one per thread: allocations, frees. Each number is incremented after its call returned, so
 * when the process is killed the trace has between n and n + 1 of each thread's allocations.
 * Thread i allocates 1000 + i bytes, so that the threads can be told apart in the trace. Each thread keeps its last 100 blocks.
 * At its end the program prints "counted N", the allocations of all threads, and returns 3. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "say.h"

struct line {
    volatile uint64_t allocations, frees;
    char padding[48];
};
static struct line *lines;
static int pause_us;
static long wanted;

NOINLINE static void *take(size_t size) {
    void *made = malloc(size);
    FRAME();
    return made;
}

static void *work(void *argument) {
    intptr_t index = (intptr_t)argument;
    void *kept[100] = {0};
    for (uint64_t i = 0; wanted == 0 || i < (uint64_t)wanted; i++) {
        void **place = &kept[i % 100];
        if (*place) {
            free(*place);
            lines[index].frees++;
        }
        *place = take(1000 + (size_t)index);
        lines[index].allocations++;
        if (pause_us && i % 64 == 63) usleep((useconds_t)pause_us);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    pause_us = argc > 3 ? atoi(argv[3]) : 0;
    wanted = argc > 4 ? atol(argv[4]) : 0;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return 1;
    lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (lines == MAP_FAILED) return 1;
    static pthread_t thread[64];
    for (intptr_t i = 1; i < threads; i++) pthread_create(&thread[i], NULL, work, (void *)i);
    work((void *)0);
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
    uint64_t allocations = 0;
    for (int i = 0; i < threads; i++) allocations += lines[i].allocations;
    say("counted %llu\n", (unsigned long long)allocations);
    return 3;
}
