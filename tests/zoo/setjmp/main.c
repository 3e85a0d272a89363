/* A scheduler made of setjmp and longjmp. As in GNU Pth, tasks get their stacks through a signal handler on an
 * alternate stack: 20 * 50 * 10 blocks. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include "../blocks/zoo.h"

enum { COUNT = 20, TURNS = 50, SIZE = 64 << 10 };
static sigjmp_buf scheduler, tasks[COUNT];
static volatile int starting;
static long sum;

__attribute__((noinline)) static void task(volatile int me) {
    for (volatile int turn = 0; turn < TURNS; turn++) {
        sum += zoo_blocks(10);
        if (!sigsetjmp(tasks[me], 0))
            siglongjmp(scheduler, 1);
    }
    siglongjmp(scheduler, 1);
}

static void on_signal(int number) {
    (void)number;
    volatile int me = starting;
    if (!sigsetjmp(tasks[me], 0))
        return;
    task(me);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (starting = 0; starting < COUNT; starting++) {
        stack_t stack = {.ss_sp = malloc(SIZE), .ss_size = SIZE};
        sigaltstack(&stack, NULL);
        raise(SIGUSR1);
    }
    zoo_ready();
    for (volatile int turn = 0; turn < TURNS; turn++)
        for (volatile int i = 0; i < COUNT; i++)
            if (!sigsetjmp(scheduler, 0))
                siglongjmp(tasks[i], 1);
    printf("%ld\n", sum);
    return 0;
}
