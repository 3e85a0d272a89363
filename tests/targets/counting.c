/* Counts its own calls. Built as every kind of program: dynamic, static, static-pie, with glibc and with musl.
 *
 * With the argument "wait" it first prints "ready" and reads a line. Then two threads and the first one make calls of
 * five kinds at lines of their own, and leave some blocks. It prints the number of allocations, their bytes, and how many
 * blocks and bytes are left, which are the same in every build, and ends with 7. A block that another function of libc
 * makes (a thread's stack) is not among them: what counts is made by a call in this file. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

static unsigned long calls, bytes, left, left_bytes;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

NOINLINE static void count(size_t size, int is_left) {
    pthread_mutex_lock(&counting);
    calls++;
    bytes += size;
    left += is_left;
    left_bytes += is_left ? size : 0;
    pthread_mutex_unlock(&counting);
}

NOINLINE static void leave(size_t size) {
    count(size, 1);
    KEEP(malloc(size));
    FRAME();
}

NOINLINE static void churn(int rounds) {
    for (int i = 0; i < rounds; i++) {
        count((size_t)(10 + i % 50), 0);
        ALLOCATE_AND_FREE((size_t)(10 + i % 50));
    }
}

NOINLINE static void grow(void) {
    count(16, 0);
    char *block = malloc(16);
    for (size_t size = 32; size < 42; size++) {
        count(size, 0);
        block = realloc(block, size);
        KEEP(block);
    }
    free(block);
}

NOINLINE static void clear(void) {
    count(70, 0);
    void *block = calloc(7, 10);
    KEEP(block);
    free(block);
}

NOINLINE static void align(void) {
    void *block = NULL;
    count(333, 0);
    if (posix_memalign(&block, 64, 333) == 0) KEEP(block);
    free(block);
}

NOINLINE static void *work(void *nothing) {
    churn(500);
    for (size_t i = 0; i < 20; i++) leave(2000 + i);
    return nothing;
}

int main(int argc, char **argv) {
    char line[16];
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        say("ready\n");
        if (read(0, line, sizeof line) < 0) return 1;
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    churn(2000);
    grow();
    clear();
    align();
    for (size_t i = 0; i < 10; i++) leave(1000 + i);
    say("%lu %lu %lu %lu\n", calls, bytes, left, left_bytes);
    return 7;
}
