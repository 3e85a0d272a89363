/* Pairs of malloc and free, and nothing else: what a sampler adds to a call that it does not take. Prints the CPU time of a
 * pair in nanoseconds, without the start of the program.
 *
 *     pairs MILLIONS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **words) {
    long pairs = (count > 1 ? atol(words[1]) : 20) * 1000000;
    unsigned size = 16;
    double began = now();
    for (long i = 0; i < pairs; i++) {
        void *block = malloc(size);
        /* Without this the compiler removes both calls. */
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
        size = (size * 5 + 17) & 511;
    }
    printf("%.3f\n", (now() - began) / (double)pairs);
    return 0;
}
