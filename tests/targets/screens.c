/* Small, but with every shape that the page can show. Its phases are separated in time. Each kind of block has its own size. Prints nothing.
 *
 *   held to the end    cache: 200 of 500 bytes, at the start: once
 *   freed at the end   until_exit: 50 of 1000 bytes, at the start, freed by main's last step
 *   a leak             token: 800 of 64 bytes, one line of code, reached by two ways (first_way, second_way), 400 each
 *   flicker            flicker: 150 of 300000 bytes, one at a time, most of them freed at once
 *   two threads        worker: 25 of 10000 bytes each, held together, freed before the peak; 500 temporary ones of 40 bytes each
 *   the peak           hump: 40 of 50000 bytes, freed later
 *   argument "after"   burst: 20 of 40000 bytes, held for 15 ms, freed before the peak; 100 tokens more by each way
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "say.h"

static void *early[50], *held[40];
static void pause_ms(int ms) { usleep(ms * 1000); }

NOINLINE static void cache(void) {
    for (int i = 0; i < 200; i++) KEEP(malloc(500));
}
NOINLINE static void until_exit(void) {
    for (int i = 0; i < 50; i++) early[i] = malloc(1000);
}
NOINLINE static void token(void) { KEEP(malloc(64)); }
NOINLINE static void first_way(int count) {
    for (int i = 0; i < count; i++) token();
    FRAME();
}
NOINLINE static void second_way(int count) {
    for (int i = 0; i < count; i++) token();
    FRAME();
}
NOINLINE static void flicker(void) {
    for (int i = 0; i < 150; i++) {
        void *volatile block = malloc(300000);
        if (i % 10 == 0) usleep(300);
        free(block);
    }
}
NOINLINE static void burst(void) {
    void *blocks[20];
    for (int i = 0; i < 20; i++) blocks[i] = malloc(40000);
    pause_ms(15);
    for (int i = 0; i < 20; i++) free(blocks[i]);
}
NOINLINE static void hump(void) {
    for (int i = 0; i < 40; i++) held[i] = malloc(50000);
}

static void *worker(void *number) {
    void *blocks[25];
    for (int i = 0; i < 25; i++) blocks[i] = malloc(10000);
    for (int i = 0; i < 500; i++) {
        void *volatile block = malloc(40);
        free(block);
    }
    pause_ms(5);
    for (int i = 0; i < 25; i++) free(blocks[i]);
    return number;
}

int main(int count, char **words) {
    int is_after = count > 1 && strcmp(words[1], "after") == 0;
    int each = is_after ? 125 : 100;
    cache();
    until_exit();
    for (int round = 0; round < 4; round++) {
        first_way(each);
        second_way(each);
        pause_ms(8);
        /* With long pauses around it, no slice of the timeline has both the flicker and other blocks, unless the whole run
         * takes longer than 256 such pauses. */
        if (round == 0) {
            pause_ms(40);
            flicker();
            pause_ms(40);
        }
        if (round == 1) {
            pthread_t threads[2];
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, worker, NULL);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        }
        if (round == 2 && is_after) burst();
        if (round == 3) hump();
    }
    pause_ms(8);
    for (int i = 0; i < 40; i++) free(held[i]);
    /* A long pause. The blocks that are freed after it are freed within the last 64th of the run, even on a busy machine. */
    pause_ms(400);
    for (int i = 0; i < 50; i++) free(early[i]);
    return 0;
}
