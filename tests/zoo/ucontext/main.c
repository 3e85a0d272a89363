/* 50 contexts of makecontext take turns: 50 * 20 * 10 blocks. */
#include <ucontext.h>
#include "../blocks/zoo.h"

enum { COUNT = 50, TURNS = 20, SIZE = 64 << 10 };
static ucontext_t home, contexts[COUNT];
static long sum;

static void body(int me) {
    for (int turn = 0; turn < TURNS; turn++) {
        swapcontext(&contexts[me], &home);
        sum += zoo_blocks(10);
    }
}

int main(void) {
    for (int i = 0; i < COUNT; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(SIZE);
        contexts[i].uc_stack.ss_size = SIZE;
        contexts[i].uc_link = &home;
        makecontext(&contexts[i], (void (*)(void))body, 1, i);
        swapcontext(&home, &contexts[i]);
    }
    zoo_ready();
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < COUNT; i++)
            swapcontext(&home, &contexts[i]);
    for (int i = 0; i < COUNT; i++)
        free(contexts[i].uc_stack.ss_sp);
    printf("%ld\n", sum);
    return 0;
}
