/* 2,000 threads allocate and free 100 bytes each through a library. Another library with code at the same addresses
 * then replaces it, and the threads allocate and free 200 bytes each through that one. With this many threads, some collide
 * in the table that finds a thread's state. Arguments: the two libraries. Prints "the same place" if the second library got
 * the address of the first, otherwise "another place". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

enum { THREADS = 2000 };
static void *(*allocate)(int);
static pthread_barrier_t barrier;

__attribute__((noinline)) static void use(int bytes) {
    void *block = allocate(bytes);
    KEEP(block);
    free(block);
}

static void *work(void *unused) {
    /* Both calls come from one place, so that the stacks differ only in the library. */
    for (volatile int i = 0; i < 2; i++) {
        use(100 + 100 * i);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    if (argc < 3) return 1;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) return 2;
    void *first = dlsym(library, "first_outer");
    allocate = first;
    pthread_attr_init(&attributes);
    for (int i = 0; i < THREADS; i++) {
        /* Stacks of many sizes, so that the thread pointers are spread. */
        pthread_attr_setstacksize(&attributes, 65536 + 4096 * (rand() % 997));
        if (pthread_create(&threads[i], &attributes, work, NULL) != 0) return 3;
    }
    pthread_barrier_wait(&barrier);
    dlclose(library);
    library = dlopen(argv[2], RTLD_NOW);
    if (library == NULL) return 4;
    allocate = dlsym(library, "second_outer");
    say((void *)allocate == first ? "the same place\n" : "another place\n");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
