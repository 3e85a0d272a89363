/* Holds up to 3000 blocks and in each round replaces a random one, through eight functions. The events hardly compress and are the same in
 * every run. Every 16th round also makes a temporary block, and every 32nd reallocates a block instead of replacing it.
 * Arguments: a file for its counts of allocations and frees, as in counter.c; rounds (0 = until killed); a word; pause in microseconds after
 * each 64 rounds (0). The word "early" or "late" says when 20000 more blocks of 1500 bytes make a peak; with "keep" replaced blocks are not
 * freed. Prints "allocations=A frees=F bytes=B temporary=T" and returns 3. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "say.h"

struct line {
    volatile uint64_t allocations, frees;
};
static struct line *line;
static uint64_t bytes, temporary, state = 88172645463325252u;
static void *latest;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static void counted(void *block, size_t size) {
    if (!block) abort();
    bytes += size;
    latest = block;
    line->allocations++;
}

static void give(void *block) {
    temporary += block == latest;
    latest = block == latest ? NULL : latest;
    free(block);
    line->frees++;
}

#define MAKER(n)                                   \
    NOINLINE static void *make_##n(size_t size) {  \
        void *made = malloc(size);                 \
        counted(made, size);                       \
        FRAME();                                   \
        return made;                               \
    }
MAKER(0) MAKER(1) MAKER(2) MAKER(3) MAKER(4) MAKER(5) MAKER(6) MAKER(7)
static void *(*const makers[8])(size_t) = {make_0, make_1, make_2, make_3, make_4, make_5, make_6, make_7};

NOINLINE static void scratch(size_t size) {
    void *made = malloc(size);
    counted(made, size);
    *(volatile char *)made = 1;
    give(made);
    FRAME();
}

NOINLINE static void *grow(void *block, size_t size) {
    void *grown = realloc(block, size);
    counted(grown, size);
    line->frees++;
    FRAME();
    return grown;
}

NOINLINE static void hill(void) {
    enum { BLOCKS = 20000 };
    void **blocks = malloc(BLOCKS * sizeof *blocks);
    counted(blocks, BLOCKS * sizeof *blocks);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = make_0(1500);
    for (int i = 0; i < BLOCKS; i++) give(blocks[i]);
    give(blocks);
    FRAME();
}

int main(int argc, char **argv) {
    if (argc < 4) return 1;
    uint64_t rounds = strtoull(argv[2], NULL, 10);
    int pause_us = argc > 4 ? atoi(argv[4]) : 0;
    int keeps = strcmp(argv[3], "keep") == 0;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return 1;
    line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (line == MAP_FAILED) return 1;
    static void *held[3000];
    if (strcmp(argv[3], "early") == 0) hill();
    for (uint64_t i = 1; rounds == 0 || i <= rounds; i++) {
        uint64_t random = next();
        void **place = &held[random % 3000];
        size_t size = 16 + (random >> 32) % 1000;
        if (pause_us && i % 64 == 63) usleep((useconds_t)pause_us);
        if (i % 16 == 0) scratch(size);
        if (i % 32 == 0 && *place) {
            *place = grow(*place, size);
            continue;
        }
        if (*place && !keeps) give(*place);
        *place = makers[random >> 29 & 7](size);
    }
    if (strcmp(argv[3], "late") == 0) hill();
    say("allocations=%llu frees=%llu bytes=%llu temporary=%llu\n", (unsigned long long)line->allocations,
        (unsigned long long)line->frees, (unsigned long long)bytes, (unsigned long long)temporary);
    return 3;
}
