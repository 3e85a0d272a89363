/*
 * pool_threads THREADS COUNT: one pool that all threads share under a lock. Each thread takes COUNT blocks of 24 bytes and puts
 * each into the mailbox of the next thread. It frees the block that was still there, and the one in its own mailbox. Prints
 * "reported=N": N = THREADS * COUNT allocations and the same number of frees.
 */
#include "heaptrack_api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PLACES 64
#define MOST 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char memory[PLACES * 32];
static int unused[PLACES];
static int unused_count;
/* For each thread, the place of the block that was passed to it and is not freed yet, or -1. */
static int mailbox[MOST];
static long per_thread;
static int threads;

static int take(void) {
    int place;
    pthread_mutex_lock(&lock);
    place = unused[--unused_count];
    heaptrack_report_alloc(memory + place * 32, 24);
    pthread_mutex_unlock(&lock);
    return place;
}

static void give(int place) {
    pthread_mutex_lock(&lock);
    heaptrack_report_free(memory + place * 32);
    unused[unused_count++] = place;
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument) {
    int self = (int)(size_t)argument;
    long n;
    for (n = 0; n < per_thread; n++) {
        int old = __atomic_exchange_n(&mailbox[(self + 1) % threads], take(), __ATOMIC_ACQ_REL);
        int mine = __atomic_exchange_n(&mailbox[self], -1, __ATOMIC_ACQ_REL);
        if (old >= 0) {
            give(old);
        }
        if (mine >= 0) {
            give(mine);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[MOST];
    int i;
    if (argc != 3 || (threads = atoi(argv[1])) < 1 || threads > MOST) {
        return 2;
    }
    per_thread = atol(argv[2]);
    for (i = 0; i < PLACES; i++) {
        unused[unused_count++] = i;
    }
    for (i = 0; i < threads; i++) {
        mailbox[i] = -1;
    }
    for (i = 0; i < threads; i++) {
        pthread_create(&thread[i], NULL, work, (void *)(size_t)i);
    }
    for (i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    for (i = 0; i < threads; i++) {
        if (mailbox[i] >= 0) {
            give(mailbox[i]);
        }
    }
    printf("reported=%ld\n", threads * per_thread);
    return 0;
}
