/* Threads on stacks from malloc. When a thread has been joined, its stack is overwritten and freed: 100 * 100 blocks. */
#include <pthread.h>
#include <string.h>
#include "../blocks/zoo.h"

static void *body(void *nothing) {
    (void)nothing;
    return (void *)zoo_blocks(100);
}

int main(void) {
    long sum = 0;
    zoo_ready();
    for (int round = 0; round < 25; round++) {
        pthread_t threads[4];
        void *stacks[4];
        for (int i = 0; i < 4; i++) {
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            stacks[i] = aligned_alloc(4096, 64 << 10);
            pthread_attr_setstack(&attributes, stacks[i], 64 << 10);
            pthread_create(&threads[i], &attributes, body, NULL);
            pthread_attr_destroy(&attributes);
        }
        for (int i = 0; i < 4; i++) {
            void *one;
            pthread_join(threads[i], &one);
            sum += (long)one;
            memset(stacks[i], 0xa5, 64 << 10);
            free(stacks[i]);
        }
    }
    printf("%ld\n", sum);
    return 0;
}
