/*
 * A pause of the recording. Before it: 10 malloc blocks of 201 bytes and 10 pool blocks of 41. In it: 5 of each are freed, one malloc block
 * is reallocated to 301 and one pool block to 61, and 3 of each are allocated (202, 42) and freed. After it: 2 malloc blocks of 203 and
 * 2 pool blocks of 43. Prints "pause done".
 */
#include "heaptrack_api.h"
#include <stdio.h>
#include <stdlib.h>

static char memory[64 * 64];

int main(void) {
    void *blocks[10], *others[3];
    int i;
    for (i = 0; i < 10; i++) {
        blocks[i] = malloc(201);
        heaptrack_report_alloc(memory + i * 64, 41);
    }
    heaptrack_pause_recording();
    for (i = 0; i < 5; i++) {
        free(blocks[i]);
        heaptrack_report_free(memory + i * 64);
    }
    blocks[5] = realloc(blocks[5], 301);
    heaptrack_report_realloc(memory + 5 * 64, 61, memory + 20 * 64);
    for (i = 0; i < 3; i++) {
        others[i] = malloc(202);
        heaptrack_report_alloc(memory + (30 + i) * 64, 42);
    }
    for (i = 0; i < 3; i++) {
        free(others[i]);
        heaptrack_report_free(memory + (30 + i) * 64);
    }
    heaptrack_resume_recording();
    for (i = 0; i < 2; i++) {
        others[i] = malloc(203);
        *(volatile char *)others[i] = 0;
        heaptrack_report_alloc(memory + (40 + i) * 64, 43);
    }
    *(volatile char *)blocks[9] = 0;
    puts("pause done");
    return 0;
}
