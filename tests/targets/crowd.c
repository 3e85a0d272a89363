/* Starts all threads and then wakes them together. Each allocates and frees PER_THREAD blocks of 40 bytes and keeps one of 24.
 *
 *   crowd THREADS PER_THREAD [attach]   allocates THREADS * PER_THREAD blocks of 40 bytes and THREADS of 24, which stay.
 *
 * With `attach` it prints "ready" first, and wakes the threads when a line comes on its standard input. It prints "done THREADS
 * PER_THREAD" and ends.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int per_thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready, go;
static void *kept[100000];

static void *work(void *number) {
    pthread_mutex_lock(&lock);
    ready++;
    pthread_cond_broadcast(&changed);
    while (!go)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < per_thread; i++) {
        void *block = malloc(40);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
    kept[(long)number] = malloc(24);
    __asm__ volatile("" : : "r"(kept[(long)number]) : "memory");
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 100;
    per_thread = argc > 2 ? atoi(argv[2]) : 100;
    pthread_t *all = calloc(threads, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < threads; i++) {
        int failed = pthread_create(&all[i], &small, work, (void *)i);
        if (failed) {
            fprintf(stderr, "thread %ld: %s\n", i, strerror(failed));
            exit(1);
        }
    }
    pthread_mutex_lock(&lock);
    while (ready < threads)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (argc > 3) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    pthread_mutex_lock(&lock);
    go = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    printf("done %d %d\n", threads, per_thread);
    return 0;
}
