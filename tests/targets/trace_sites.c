/* Four places that allocate, always the same. Left at the end: kept() 10 blocks of 1000 bytes; mostly() 10 of 100 blocks of 64 bytes;
 * grown() 1 block of 30000 bytes, made by three calls of realloc: 10, 300, 30000 bytes. churned() allocates 1000 blocks of 77 bytes and
 * leaves nothing. With the argument "nothing" everything is freed. Returns 9 and prints nothing.
 * Peaks of live blocks: kept 10, mostly 100, grown 1, churned 1. */
#include <stdlib.h>
#include <string.h>
#include "say.h"

static void *blocks[200];
static int count;

__attribute__((noinline)) static void *kept(void) { return malloc(1000); }
__attribute__((noinline)) static void *mostly(void) { return calloc(8, 8); }
__attribute__((noinline)) static void *grown(void *old, size_t size) { return realloc(old, size); }
__attribute__((noinline)) static void *churned(void) { return malloc(77); }

int main(int argc, char **argv) {
    for (int i = 0; i < 10; i++) blocks[count++] = kept();
    void *many[100];
    for (int i = 0; i < 100; i++) many[i] = mostly();
    for (int i = 0; i < 90; i++) free(many[i]);
    for (int i = 90; i < 100; i++) blocks[count++] = many[i];
    void *one = NULL;
    size_t sizes[] = {10, 300, 30000};
    for (int i = 0; i < 3; i++) one = grown(one, sizes[i]);
    blocks[count++] = one;
    for (int i = 0; i < 1000; i++) {
        void *made = churned();
        KEEP(made);
        free(made);
    }
    if (argc > 1 && strcmp(argv[1], "nothing") == 0)
        while (count > 0) free(blocks[--count]);
    KEEP(blocks);
    return 9;
}
