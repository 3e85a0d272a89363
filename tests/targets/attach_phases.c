/* Works on command and is idle in between, for tests that attach while nothing happens. Argument: the number of threads (1).
 *
 * Every line on stdin is a number n. Each thread then does n rounds, and "done n" is printed. A round allocates and frees
 * blocks of 1001 (malloc), 1002 (calloc), 1003 (realloc of null), 1004 (realloc), 1005 (reallocarray of null), 1006
 * (posix_memalign), 1088 (aligned_alloc), 1008 (memalign) and 1010 bytes (strdup): 9 allocations, 9 frees
 * (the realloc to 1004 frees the block of 1003).
 * Before the first line one block of 2001 bytes is allocated; a line "0" frees it. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int threads = 1;
static long rounds;
static pthread_barrier_t begin, end;
static char text[1010];
static void *volatile sink;

__attribute__((noinline)) static void *keep(void *block) {
    if (!block) abort();
    memset(block, 1, 1000);
    sink = block;
    return block;
}

__attribute__((noinline)) static void round_of_calls(void) {
    void *made[9];
    made[0] = keep(malloc(1001));
    made[1] = keep(calloc(1, 1002));
    made[2] = keep(realloc(NULL, 1003));
    made[2] = keep(realloc(made[2], 1004));
    made[3] = keep(reallocarray(NULL, 1, 1005));
    void *aligned = NULL;
    if (posix_memalign(&aligned, 64, 1006) != 0) abort();
    made[4] = keep(aligned);
    made[5] = keep(aligned_alloc(64, 1088));
    made[6] = keep(memalign(64, 1008));
    made[7] = keep(strdup(text));
    for (int i = 0; i < 8; i++) free(made[i]);
}

static void *work(void *argument) {
    for (;;) {
        pthread_barrier_wait(&begin);
        for (long i = 0; i < rounds; i++) round_of_calls();
        pthread_barrier_wait(&end);
    }
    return argument;
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atoi(argv[1]);
    memset(text, 'x', sizeof text - 1);
    char *first = keep(malloc(2001));
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0) abort();
    }
    static char line[64];
    size_t length = 0;
    while (read(0, line + length, 1) == 1) {
        if (line[length] != '\n' && length < sizeof line - 2) {
            length++;
            continue;
        }
        line[length] = 0;
        length = 0;
        rounds = atol(line);
        if (rounds == 0) free(first);
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        char answer[80];
        int said = snprintf(answer, sizeof answer, "done %ld\n", rounds);
        if (write(1, answer, (size_t)said) != said) return 1;
    }
    return 0;
}
