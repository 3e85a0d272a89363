/* 20 threads on stacks of PTHREAD_STACK_MIN bytes, each allocating 5 blocks of 300 bytes at a depth of
 * 4; all freed. Own blocks: 100 allocations of 300 bytes, none left. With an argument it first keeps
 * 10 bytes, prints "ready" and waits for a byte on stdin. In this case the stacks are filled with a pattern and
 * have a page below them that cannot be written, and it prints the most stack that a thread used: `bytes=N`.
 * Prints "small stacks done". */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "say.h"

NOINLINE static void deeper(int depth) {
    if (depth < 4) {
        deeper(depth + 1);
    } else {
        for (int i = 0; i < 5; i++) ALLOCATE_AND_FREE(300);
    }
    FRAME();
}

static void *work(void *unused) {
    (void)unused;
    deeper(1);
    return NULL;
}

#define THREADS 20
#define PAGE 4096
#define PAINT 0x5a

static size_t size;

static char *painted(void) {
    char *made = mmap(NULL, PAGE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED || mprotect(made, PAGE, PROT_NONE) != 0) _exit(96);
    return memset(made + PAGE, PAINT, size);
}

static size_t used(const char *stack) {
    size_t clean = 0;
    while (stack[clean] == PAINT) clean++;
    return size - clean;
}

int main(int argc, char **argv) {
    (void)argv;
    size = (size_t)PTHREAD_STACK_MIN;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, size) != 0) return 1;
    char byte, *stack[THREADS];
    if (argc > 1) {
        KEEP(malloc(10));
        say("ready\n");
        if (read(0, &byte, 1) != 1) return 1;
    }
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (argc > 1 && pthread_attr_setstack(&attributes, stack[i] = painted(), size) != 0) return 1;
        if (pthread_create(&thread[i], &attributes, work, NULL) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    size_t most = 0;
    for (int i = 0; i < THREADS && argc > 1; i++)
        if (used(stack[i]) > most) most = used(stack[i]);
    if (argc > 1) say("bytes=%zu\n", most);
    say("small stacks done\n");
    return 0;
}
