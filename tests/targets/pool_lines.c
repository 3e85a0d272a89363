/*
 * For attaching. For each line N on stdin, it takes N blocks of 48 bytes from a pool, reports them, and frees all but every tenth.
 * Prints "took N left L". The blocks that the line before has left are freed first. With -DLINKED it calls the functions of the library
 * that it is linked to. C89 and C++98.
 */
#ifdef LINKED
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void heaptrack_malloc(void *ptr, size_t size);
void heaptrack_free(void *ptr);
#ifdef __cplusplus
}
#endif
#define heaptrack_report_alloc heaptrack_malloc
#define heaptrack_report_free heaptrack_free
#else
#include "heaptrack_api.h"
#endif
#include <stdio.h>
#include <stdlib.h>

#define ROOM 48

static char *memory;
static long room;

static void take(long place) {
    heaptrack_report_alloc(memory + place * ROOM, ROOM);
}

static void give(long place) {
    heaptrack_report_free(memory + place * ROOM);
}

int main(void) {
    char line[64];
    long n, i, left, held = 0;
    while (fgets(line, sizeof line, stdin)) {
        n = atol(line);
        for (i = 0; i < held; i++) {
            give(i);
        }
        if (n / 10 + 11 > room) {
            room = n / 10 + 11;
            memory = (char *)realloc(memory, room * ROOM);
        }
        for (i = 0, left = 0; i < n; i++) {
            take(left);
            if (i % 10 == 0) {
                left++;
            } else {
                give(left);
            }
        }
        held = left;
        printf("took %ld left %ld\n", n, left);
        fflush(stdout);
    }
    return 0;
}
