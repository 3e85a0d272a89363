// Blocks of 100 bytes, as many by `left` as the first argument says and as many by `right` as the second. Both are inlined into
// `main`, so that their stacks differ in no function that the processor has called.
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
