/* A program that defines malloc itself. The loader prefers its definition to that of a preloaded library, so heaptrack must patch it.
 * Calls its malloc(10) once, and calloc(3, 7), realloc to 50 bytes and free, and prints "own malloc ran". A constructor of it calls
 * malloc(11). So 4 allocations of 10 + 11 + 21 + 50 = 92 bytes, of which 21 bytes in 2 blocks are left. */
#include <stddef.h>
#include <string.h>
#include "say.h"
static char arena[1 << 20];
static size_t used;
void *malloc(size_t size) {
    void *block = arena + used;
    used += (size + 15) & ~(size_t)15;
    return used <= sizeof arena ? block : NULL;
}
static volatile unsigned long freed;
void free(void *block) { freed += block != NULL; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (old) memcpy(block, old, size < 21 ? size : 21);
    return block;
}
__attribute__((constructor)) static void construct(void) { KEEP(malloc(11)); }
int main(void) {
    KEEP(malloc(10));
    void *block = calloc(3, 7);
    KEEP(block);
    block = realloc(block, 50);
    KEEP(block);
    free(block);
    say("own malloc ran\n");
    return 0;
}
