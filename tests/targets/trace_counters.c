/* Four threads allocate and free at random (seed: argument 1), 1 to 100 bytes in small() and 1000 to 1999 in large(), and count what
 * they hold. Prints "small BLOCKS BYTES large BLOCKS BYTES", the live blocks of all threads, and sleeps until it is killed. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "say.h"

enum { THREADS = 4, STEPS = 50000, PLACES = 500 };

struct tally {
    long count, bytes;
};
static struct tally tallies[THREADS][2];
static pthread_barrier_t done;
static unsigned seed;

__attribute__((noinline)) static void *small(size_t size) { return malloc(size); }
__attribute__((noinline)) static void *large(size_t size) { return malloc(size); }

static void *work(void *argument) {
    long number = (long)argument;
    unsigned state = seed * 31 + (unsigned)number;
    void *blocks[PLACES] = {0};
    size_t sizes[PLACES];
    int kinds[PLACES];
    for (int i = 0; i < STEPS; i++) {
        int place = rand_r(&state) % PLACES;
        if (blocks[place]) {
            free(blocks[place]);
            blocks[place] = NULL;
            tallies[number][kinds[place]].count--;
            tallies[number][kinds[place]].bytes -= (long)sizes[place];
        } else {
            kinds[place] = rand_r(&state) % 2;
            sizes[place] = kinds[place] ? 1000 + rand_r(&state) % 1000 : 1 + rand_r(&state) % 100;
            blocks[place] = kinds[place] ? large(sizes[place]) : small(sizes[place]);
            tallies[number][kinds[place]].count++;
            tallies[number][kinds[place]].bytes += (long)sizes[place];
        }
    }
    pthread_barrier_wait(&done);
    for (;;) pause();
    return NULL;
}

int main(int argc, char **argv) {
    seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    pthread_barrier_wait(&done);
    struct tally sum[2] = {{0, 0}, {0, 0}};
    for (int i = 0; i < THREADS; i++)
        for (int kind = 0; kind < 2; kind++) {
            sum[kind].count += tallies[i][kind].count;
            sum[kind].bytes += tallies[i][kind].bytes;
        }
    say("small %ld %ld large %ld %ld\n", sum[0].count, sum[0].bytes, sum[1].count, sum[1].bytes);
    for (;;) pause();
}
