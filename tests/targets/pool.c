/*
 * A pool inside one malloc block, reported with heaptrack_api.h. C89 to C23 and C++98 to C++20.
 *
 * pool COUNT: reports COUNT allocations of 1 to 64 bytes in 1000 places, of which every seventh is a realloc, frees most of them,
 * and prints its counts: "allocations=A deallocations=D bytes=B live=L live_bytes=M peak_bytes=P". The pool's own memory is one malloc of
 * 64000 bytes, whose address is that of the pool's first block.
 */
#include "heaptrack_api.h"
#include <stdio.h>
#include <stdlib.h>

#define PLACES 1000
#define ROOM 64

static char *memory;
static int unused[PLACES];
static int unused_count;
static size_t sizes[PLACES];

static unsigned long allocations, deallocations, bytes, live_blocks, live_bytes, peak_bytes;

static void count_in(size_t size) {
    allocations++;
    bytes += size;
    live_blocks++;
    live_bytes += size;
    if (live_bytes > peak_bytes) {
        peak_bytes = live_bytes;
    }
}

static void count_out(size_t size) {
    deallocations++;
    live_blocks--;
    live_bytes -= size;
}

static int take(size_t size) {
    int place = unused[--unused_count];
    sizes[place] = size;
    heaptrack_report_alloc(memory + place * ROOM, size);
    count_in(size);
    return place;
}

static void give(int place) {
    heaptrack_report_free(memory + place * ROOM);
    count_out(sizes[place]);
    unused[unused_count++] = place;
}

/* Moves the block to another place, like a realloc that moves. */
static int resize(int place, size_t size) {
    int other = unused[--unused_count];
    heaptrack_report_realloc(memory + place * ROOM, size, memory + other * ROOM);
    count_out(sizes[place]);
    count_in(size);
    sizes[other] = size;
    unused[unused_count++] = place;
    return other;
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    unsigned long n = 0;
    int held[PLACES / 2];
    int held_count = 0;
    int place;
    memory = (char *)malloc(PLACES * ROOM);
    for (place = 0; place < PLACES; place++) {
        unused[place] = PLACES - 1 - place;
    }
    unused_count = PLACES;
    while (n < count) {
        place = take(1 + n % ROOM);
        n++;
        if (n % 7 == 0 && n < count) {
            place = resize(place, 1 + n % ROOM);
            n++;
        }
        if (n % 3 == 0) {
            give(place);
        } else {
            held[held_count++] = place;
        }
        if (held_count == PLACES / 2) {
            while (held_count > PLACES / 4) {
                give(held[--held_count]);
            }
        }
    }
    printf("allocations=%lu deallocations=%lu bytes=%lu live=%lu live_bytes=%lu peak_bytes=%lu\n", allocations,
           deallocations, bytes, live_blocks, live_bytes, peak_bytes);
    return 0;
}
