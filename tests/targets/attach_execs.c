/* Allocates and frees blocks of 100 bytes for the number of milliseconds in its argument (0), then becomes `/bin/sleep 30`. */
#include <stdlib.h>
#include <time.h>
#include "say.h"

int main(int argc, char **argv) {
    long life = argc > 1 ? atol(argv[1]) : 0;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        void *block = malloc(100);
        KEEP(block);
        free(block);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < life);
    execl("/bin/sleep", "sleep", "30", (char *)NULL);
    return 1;
}
