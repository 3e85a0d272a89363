/* Recursion deeper than any stack in the memo, on a stack that is then made inaccessible, and again on a
 * stack at a lower address. So the remembered root of the first stack is at a higher address than the second stack.
 *
 *   deep_fibers   allocates 2 * 200 blocks of 32 bytes at depth 3,000, frees them, prints "done".
 */
#include "fibers.h"

enum { DEPTH = 3000, BLOCKS = 200, SIZE = 2 << 20 };

static void *scheduler, *current;

static __attribute__((noinline)) int recurse(int depth) {
    int sum = 0;
    if (depth) {
        sum = recurse(depth - 1);
    } else {
        for (int i = 0; i < BLOCKS; i++) {
            void *block = malloc(32);
            sum += block != NULL;
            free(block);
        }
    }
    __asm__ volatile("" : "+r"(sum));
    return sum;
}

static void body(void) {
    recurse(DEPTH);
    fiber_switch(&current, scheduler);
}

int main(void) {
    /* Two stacks, one above the other, with a gap that is never accessible. */
    char *room = mmap(NULL, 4 * (size_t)SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *low = room, *high = room + 2 * (size_t)SIZE;
    if (room == MAP_FAILED || mprotect(low, SIZE, PROT_READ | PROT_WRITE) || mprotect(high, SIZE, PROT_READ | PROT_WRITE))
        return 1;
    fiber_switch(&scheduler, fiber_start(high + SIZE, body));
    mprotect(high, SIZE, PROT_NONE);
    fiber_switch(&scheduler, fiber_start(low + SIZE, body));
    puts("done");
    return 0;
}
