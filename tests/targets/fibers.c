/* Fibers on stacks of their own, whose outermost return address is 0. A fiber gets 4, 8 or 12 turns.
 * In each turn it allocates 3 blocks of 48 bytes, each in a recursion of some depth, and frees them. When a fiber
 * has ended, its stack becomes unreadable, and the next fiber gets a stack at another address.
 *
 *   fibers COUNT   prints "N blocks": this many blocks of 48 bytes were allocated, and all were freed.
 */
#include "fibers.h"

enum { ALIVE = 16, TURNS = 4, SIZE = 16 << 10 };

static void *scheduler, *current;
static char *stacks[ALIVE];
static void *saved[ALIVE];
static int turns[ALIVE];

static __attribute__((noinline)) void *allocate(int depth) {
    char pad[64];
    memset(pad, depth, sizeof pad);
    __asm__ volatile("" : : "r"(pad) : "memory");
    void *block = depth ? allocate(depth - 1) : malloc(48);
    __asm__ volatile("" : : "r"(pad) : "memory");
    return block;
}

static void body(void) {
    for (int turn = 0;; turn++) {
        void *blocks[3] = {allocate(turn), allocate(turn + 2), allocate(1)};
        for (int i = 0; i < 3; i++)
            free(blocks[i]);
        fiber_switch(&current, scheduler);
    }
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100;
    long made = 0, ended = 0, blocks = 0;
    for (unsigned step = 0; ended < count; step++) {
        int i = (step * 7 + step / 5) % ALIVE;
        if (!stacks[i] && made < count) {
            stacks[i] = fiber_stack(SIZE);
            saved[i] = fiber_start(stacks[i] + SIZE, body);
            turns[i] = 0;
            made++;
        }
        if (!stacks[i])
            continue;
        fiber_switch(&scheduler, saved[i]);
        saved[i] = current;
        blocks += 3;
        if (++turns[i] == TURNS * (1 + i % 3)) {
            /* Not unmapped, because the next fiber would get the same address. */
            mprotect(stacks[i], SIZE, PROT_NONE);
            stacks[i] = NULL;
            ended++;
        }
    }
    printf("%ld blocks\n", blocks);
    return 0;
}
