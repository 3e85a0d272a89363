// Memory of every kind, until it is killed. Prints "ready" once everything is there.
//
//   64 threads, each with 300 blocks of 1000 to 1299 bytes, half of them freed again, and 100 kB of touched stack
//   24 MB malloc, of which 4 MB are written; 8 MB calloc, all of it read and nothing written
//   3 MB of a file, read; 5 MB of shared memory, written; 7 MB of anonymous memory, written
// The main thread allocates 4000 blocks of 1500 bytes. The shared memory comes last. Then the main thread frees random
// blocks and allocates others of up to 3000 bytes, so that 4000 live, at most 1000 times per millisecond.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define THREADS 64
#define MB (1 << 20)

static pthread_barrier_t ready;

static void *work(void *unused) {
    volatile char touched[100000];
    for (unsigned i = 0; i < sizeof touched; i++)
        touched[i] = 1;
    char *blocks[300];
    for (int i = 0; i < 300; i++)
        blocks[i] = memset(malloc(1000 + i), 1, 1000 + i);
    for (int i = 0; i < 300; i += 2)
        free(blocks[i]);
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return touched[0] ? unused : NULL;
}

static void sleep_ns(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
    }
    char *large = malloc(24 * MB);
    memset(large, 1, 4 * MB);
    volatile char *zeros = calloc(8 * MB, 1);
    int sum = 0;
    for (int i = 0; i < 8 * MB; i += 4096)
        sum += zeros[i];
    int file = open(argv[1], O_RDONLY);
    volatile char *mapped = mmap(NULL, 3 * MB, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED)
        return 3;
    for (int i = 0; i < 3 * MB; i += 4096)
        sum += mapped[i];
    memset(mmap(NULL, 7 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 7 * MB);
    pthread_barrier_wait(&ready);
    static char *blocks[4000];
    for (int i = 0; i < 4000; i++)
        blocks[i] = memset(malloc(1500), 1, 1500);
    // The last one: from here on, everything is there.
    int shared = memfd_create("own-memory", 0);
    if (ftruncate(shared, 5 * MB) != 0)
        return 4;
    memset(mmap(NULL, 5 * MB, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0), 1, 5 * MB);
    puts("ready");
    fflush(stdout);
    unsigned random = 1 + sum;
    for (;;) {
        for (int i = 0; i < 1000; i++) {
            random = random * 1103515245 + 12345;
            unsigned at = (random >> 8) % 4000, size = 1 + (random >> 4) % 3000;
            free(blocks[at]);
            blocks[at] = memset(malloc(size), 1, size);
        }
        sleep_ns(1000000);
    }
}
