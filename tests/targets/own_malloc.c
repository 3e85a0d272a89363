/* A program that defines malloc itself. The loader prefers its definition to ours, so no call could be recorded, and heaptrack must say so.
 * Calls its malloc(10) once and prints "own malloc ran". */
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
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (old) memcpy(block, old, size);
    return block;
}
int main(void) {
    KEEP(malloc(10));
    say("own malloc ran\n");
    return 0;
}
