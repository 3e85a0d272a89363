/* Resizes 1000 blocks from 5001 to 5003 bytes with libinterrupted.so. During each realloc, a function of this program resizes another block from
 * 5002 to 5004 bytes, and allocates and frees 5005 bytes. All blocks are freed. With the argument `wait` it first waits for a line, then for
 * another one at the end. Prints how often the function was called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

extern void (*interrupted)(void);
static void *other;
static int is_inside, calls;

static void resize_other(void) {
    if (is_inside) return;
    is_inside = 1;
    other = realloc(other, 5004);
    KEEP(other);
    ALLOCATE_AND_FREE(5005);
    calls++;
    is_inside = 0;
}

static void wait_for_line(void) {
    char byte;
    do {
        if (read(0, &byte, 1) != 1) _exit(9);
    } while (byte != '\n');
}

int main(int argc, char **argv) {
    int waits = argc > 1 && !strcmp(argv[1], "wait");
    if (waits) say("ready\n"), wait_for_line();
    interrupted = resize_other;
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(5001);
        other = malloc(5002);
        block = realloc(block, 5003);
        KEEP(block);
        free(block);
        free(other);
    }
    say("%d calls\n", calls);
    if (waits) wait_for_line();
    return 0;
}
