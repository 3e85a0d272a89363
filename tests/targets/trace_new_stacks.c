/* Ever new stacks: each allocation is made through eight of 64 functions, chosen at random (seed: argument 2), for argument 1
 * seconds. 2000 blocks of 48 bytes live at a time; all are freed at the end. Prints "calls N", the number of calls of malloc and
 * free. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include "say.h"

enum { LIVE = 2000, DEPTH = 8 };
static void *blocks[LIVE];
static uint64_t state;

static void *descend(uint64_t path, int depth);
#define F(n) __attribute__((noinline)) static void *f##n(uint64_t path, int depth) { void *made = descend(path, depth); KEEP(made); return made; }
#define EIGHT(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7)
EIGHT(F, 0) EIGHT(F, 1) EIGHT(F, 2) EIGHT(F, 3) EIGHT(F, 4) EIGHT(F, 5) EIGHT(F, 6) EIGHT(F, 7)
#define NAME(n) f##n,
static void *(*const functions[64])(uint64_t, int) = {EIGHT(NAME, 0) EIGHT(NAME, 1) EIGHT(NAME, 2) EIGHT(NAME, 3)
                                                      EIGHT(NAME, 4) EIGHT(NAME, 5) EIGHT(NAME, 6) EIGHT(NAME, 7)};

static void *descend(uint64_t path, int depth) {
    if (depth == 0) return malloc(48);
    void *made = functions[path & 63](path >> 6, depth - 1);
    KEEP(made);
    return made;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    double end = now() + (argc > 1 ? atof(argv[1]) : 1.0);
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 1;
    unsigned long calls = 0;
    while (now() < end) {
        for (int i = 0; i < LIVE; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            calls += 1 + (blocks[i] != NULL);
            free(blocks[i]);
            blocks[i] = descend(state >> 16, DEPTH);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        calls += blocks[i] != NULL;
        free(blocks[i]);
    }
    say("calls %lu\n", calls);
    return 0;
}
