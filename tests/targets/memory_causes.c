// A cause of resident memory that is of no use, then "ready", then it waits until it is killed. With a second argument, the same work
// without the cause.
//
//   arenas   8 threads, one after the other, each with 8 MB of blocks, all freed again but the last one; without: MALLOC_ARENA_MAX=1
//   full     the same threads keep their blocks
//   top      40 MB of blocks, all freed; the block that came after them stays; without: it came first
//   stacks   16 threads that were 1 MB deep in their calls; without: threads that have ended were that deep
//   huge     64 MB in huge pages of which one byte each is written; without: no huge pages
//   dense    64 MB in huge pages, all written
//   pools    40 MB of blocks, then "filled"; after SIGUSR1 all are freed but the last one
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MB (1 << 20)
#define SIZE 1000

static int keeps, waits, is_without;

static void wait_for_signal(void) {
    sigset_t signals;
    int signal;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    puts("filled");
    fflush(stdout);
    sigwait(&signals, &signal);
}

static void fill(size_t bytes) {
    size_t count = bytes / SIZE;
    char **blocks = mmap(NULL, count * sizeof(char *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++)
        blocks[i] = memset(malloc(SIZE), 1, SIZE);
    if (waits)
        wait_for_signal();
    for (size_t i = 0; i + 1 < count && !keeps; i++)
        free(blocks[i]);
    munmap(blocks, count * sizeof(char *));
}

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready;

static void *arena(void *unused) {
    // An arena of its own, while the others still run.
    free(malloc(1));
    pthread_barrier_wait(&ready);
    pthread_mutex_lock(&turn);
    fill(8 * MB);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return unused;
}

__attribute__((noinline)) static int deep(int levels) {
    volatile char room[4096];
    memset((char *)room, levels, sizeof room);
    return levels > 0 ? deep(levels - 1) + room[17] : room[5];
}

static void *stack(void *unused) {
    deep(256);
    if (is_without)
        return unused;
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return unused;
}

__attribute__((noinline)) static char *keep(void) {
    return memset(malloc(200), 1, 200);
}

static void top(void) {
    if (is_without)
        keep();
    size_t count = 40 * MB / SIZE;
    char **blocks = mmap(NULL, count * sizeof(char *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++)
        blocks[i] = memset(malloc(SIZE), 1, SIZE);
    if (!is_without)
        keep();
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    munmap(blocks, count * sizeof(char *));
}

static void huge(int is_dense) {
    char *memory = mmap(NULL, 66 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = (char *)(((size_t)memory + 2 * MB - 1) / (2 * MB) * (2 * MB));
    madvise(memory, 64 * MB, is_without ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    for (size_t i = 0; i < 64 * MB; i += is_dense ? 1 : 2 * MB)
        memory[i] = 1;
}

static void threads(int count, void *(*work)(void *)) {
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        if (is_without)
            pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv) {
    const char *cause = argc > 1 ? argv[1] : "";
    is_without = argc > 2;
    keeps = strcmp(cause, "full") == 0;
    if (strcmp(cause, "arenas") == 0 || keeps) {
        pthread_barrier_init(&ready, NULL, 9);
        is_without = 0;
        threads(8, arena);
        pthread_barrier_wait(&ready);
        pthread_barrier_wait(&ready);
    } else if (strcmp(cause, "top") == 0) {
        top();
    } else if (strcmp(cause, "stacks") == 0) {
        pthread_barrier_init(&ready, NULL, 17);
        threads(16, stack);
        if (!is_without)
            pthread_barrier_wait(&ready);
    } else if (strcmp(cause, "huge") == 0 || strcmp(cause, "dense") == 0) {
        huge(cause[0] == 'd');
    } else if (strcmp(cause, "pools") == 0) {
        waits = 1;
        fill(40 * MB);
    } else {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
