/* Handlers that allocate on alternate stacks, with one stack for each of four threads. Signals are raised while the
 * thread is outside of malloc: 4 * 250 * 10 blocks. The last signal of a thread is a fault, and its handler leaves by
 * siglongjmp. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include "../blocks/zoo.h"

static _Thread_local long sum;
static _Thread_local sigjmp_buf back;
static pthread_barrier_t barrier;

static void on_signal(int number) {
    sum += zoo_blocks(10);
    if (number == SIGSEGV)
        siglongjmp(back, 1);
}

static void *body(void *page) {
    stack_t stack = {.ss_size = 64 << 10};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 249; i++)
        raise(SIGUSR1);
    if (!sigsetjmp(back, 1))
        *(volatile char *)page = 1;
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    munmap(stack.ss_sp, stack.ss_size);
    return (void *)sum;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t threads[4];
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, body, page);
    pthread_barrier_wait(&barrier);
    zoo_ready();
    pthread_barrier_wait(&barrier);
    long all = 0;
    for (int i = 0; i < 4; i++) {
        void *one;
        pthread_join(threads[i], &one);
        all += (long)one;
    }
    printf("%ld\n", all);
    return 0;
}
