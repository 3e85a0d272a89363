/* 20 threads on stacks of PTHREAD_STACK_MIN bytes, each allocating 5 blocks of 300 bytes at a depth of 4; all freed.
 * Own blocks: 100 allocations of 300 bytes, none left. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

NOINLINE static void deeper(int depth) {
    if (depth < 4) {
        deeper(depth + 1);
    } else {
        for (int i = 0; i < 5; i++) {
            void *made = malloc(300);
            KEEP(made);
            free(made);
        }
    }
    FRAME();
}

static void *work(void *unused) {
    (void)unused;
    deeper(1);
    return NULL;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) != 0) return 1;
    pthread_t thread[20];
    for (int i = 0; i < 20; i++)
        if (pthread_create(&thread[i], &attributes, work, NULL) != 0) return 1;
    for (int i = 0; i < 20; i++) pthread_join(thread[i], NULL);
    say("small stacks done\n");
    return 0;
}
