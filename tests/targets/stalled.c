/* Threads that allocate and free while the recorder may be stopped.
 *
 *   stalled THREADS PAIRS   after the first SIGUSR1 each thread allocates and frees PAIRS blocks of 40 bytes; after the second
 *                           one each thread allocates 50 blocks of 77 bytes, which stay, and the program ends with code 7.
 *
 * At its end it prints how many blocks of 40 bytes were allocated, as it counted them itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long pairs;
static sigset_t usr1;
static pthread_barrier_t start;

static void *work(void *count) {
    pthread_barrier_wait(&start);
    for (long i = 0; i < pairs; i++) {
        void *block = malloc(40);
        __asm__ volatile("" : : "r"(block) : "memory");
        *(long *)count += block != NULL;
        free(block);
    }
    /* The work is done. Wait for the second signal. */
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&start);
    for (int i = 0; i < 50; i++) {
        void *block = malloc(77);
        __asm__ volatile("" : : "r"(block) : "memory");
    }
    return NULL;
}

static void wait_for_signal(void) {
    int signal;
    sigwait(&usr1, &signal);
}

int main(int argc, char **argv) {
    enum { MOST = 64 };
    static pthread_t threads[MOST];
    static struct { long count; char line[56]; } counts[MOST];
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pairs = argc > 2 ? atol(argv[2]) : 1000;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    pthread_barrier_init(&start, NULL, count + 1);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, &counts[i].count);
    wait_for_signal();
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&start);
    /* Shows the test that the threads are done. */
    close(0);
    wait_for_signal();
    pthread_barrier_wait(&start);
    long sum = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += counts[i].count;
    }
    printf("%ld\n", sum);
    return 7;
}
