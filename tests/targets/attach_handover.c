/* For each line on stdin the first thread allocates a block of 5003 bytes 1000 times, and another thread, which does
 * nothing else, frees each. An allocator without per-thread caches returns the same block each time. Prints "done". */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include "say.h"

static sem_t given, taken;
static void *volatile block;

static void *frees(void *unused) {
    for (;;) {
        while (sem_wait(&given) != 0) {
        }
        free(block);
        sem_post(&taken);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    sem_init(&given, 0, 0);
    sem_init(&taken, 0, 0);
    if (pthread_create(&thread, NULL, frees, NULL) != 0) return 1;
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        for (int i = 0; i < 1000; i++) {
            block = malloc(5003);
            if (!block) return 1;
            sem_post(&given);
            while (sem_wait(&taken) != 0) {
            }
        }
        say("done\n");
    }
    return 0;
}
