/* Threads that begin and end. Argument: their number (10000), at most 16 at a time. Each allocates 3 blocks of 100
 * bytes and frees 2. main frees the third after the join. Own blocks: 3 * n allocations with a total of 300 * n bytes, all freed.
 * Prints "short threads N". */
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

static void *work(void *unused) {
    (void)unused;
    void *a = malloc(100), *b = malloc(100), *c = malloc(100);
    KEEP(a);
    KEEP(b);
    free(a);
    free(b);
    return c;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 10000;
    pthread_t batch[16];
    for (int done = 0; done < wanted;) {
        int count = wanted - done < 16 ? wanted - done : 16;
        for (int i = 0; i < count; i++)
            if (pthread_create(&batch[i], NULL, work, NULL) != 0) return 1;
        for (int i = 0; i < count; i++) {
            void *left;
            pthread_join(batch[i], &left);
            free(left);
        }
        done += count;
    }
    say("short threads %d\n", wanted);
    return 0;
}
