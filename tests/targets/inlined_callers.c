// Allocates blocks of 100 bytes and frees each at once: in `left` as many as the first argument says, in `right` as many as the second.
// Prints nothing.
// Both functions are inlined into `main`, so their stacks have the same return addresses except for the leaf.
#include <stdlib.h>

static inline __attribute__((always_inline)) void take(void) {
    void *volatile block = malloc(100);
    free(block);
}

static inline __attribute__((always_inline)) void left(void) {
    take();
}

static inline __attribute__((always_inline)) void right(void) {
    take();
}

int main(int count, char **words) {
    if (count < 3) return 1;
    for (int i = atoi(words[1]); i > 0; i--) left();
    for (int i = atoi(words[2]); i > 0; i--) right();
    return 0;
}
