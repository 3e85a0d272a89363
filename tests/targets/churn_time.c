/* Two threads that do nothing but malloc and free.
 *
 *   churn_time SECONDS   prints how many blocks of 40 bytes were allocated in that time; all were freed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *work(void *count) {
    long done = 0;
    for (double end = now() + seconds; now() < end;) {
        for (int i = 0; i < 1000; i++) {
            void *block = malloc(40);
            __asm__ volatile("" : : "r"(block) : "memory");
            free(block);
        }
        done += 1000;
    }
    *(long *)count = done;
    return NULL;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atof(argv[1]) : 1;
    pthread_t threads[2];
    long counts[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, &counts[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", counts[0] + counts[1]);
    return 0;
}
