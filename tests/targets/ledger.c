/* Holds blocks on request, for tests that look at it while it runs. Lines on stdin: "+N S" allocates N blocks of S bytes in
 * `hold`, "-N" frees the N oldest ones. Each is answered by a line with the number of blocks and bytes that it holds. It
 * allocates nothing else after its start, and ends at the end of stdin without freeing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "say.h"

static struct { void *block; size_t size; } held[100000];
static size_t first, next, bytes;

__attribute__((noinline)) static void hold(size_t count, size_t size) {
    for (size_t i = 0; i < count; i++, next++, bytes += size) {
        held[next].block = malloc(size);
        held[next].size = size;
        memset(held[next].block, 1, size);
    }
}

static int read_line(char *line, size_t room) {
    for (size_t at = 0; at + 1 < room; at++) {
        if (read(0, line + at, 1) != 1) return 0;
        if (line[at] == '\n') { line[at] = 0; return 1; }
    }
    return 0;
}

int main(void) {
    static char line[64];
    say("ready\n");
    while (read_line(line, sizeof line)) {
        char *rest;
        size_t count = strtoul(line + 1, &rest, 10);
        if (line[0] == '+') hold(count, strtoul(rest, 0, 10));
        else for (size_t i = 0; i < count && first < next; i++, first++) {
            bytes -= held[first].size;
            free(held[first].block);
        }
        say("%zu %zu\n", next - first, bytes);
    }
    return 0;
}
