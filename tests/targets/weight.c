/* Prints how much memory it uses. Arguments: threads (1), number of blocks of 16 bytes that main allocates and keeps (0).
 * Each thread allocates and frees 20000 blocks of 32 bytes, at depths 1 to 40, so that heaptrack's tables fill. Then main
 * allocates the blocks that it keeps. Prints the highest resident size in kB, as the kernel reports it: `kB=N`. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

static pthread_barrier_t together;

NOINLINE static void deeper(int depth) {
    if (depth > 0) {
        deeper(depth - 1);
    } else {
        ALLOCATE_AND_FREE(32);
    }
    FRAME();
}

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++) deeper(1 + i % 40);
    pthread_barrier_wait(&together); /* All threads are alive at once, so their memory counts together. */
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    long blocks = argc > 2 ? atol(argv[2]) : 0;
    static pthread_t thread[64];
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (int i = 1; i < threads; i++) pthread_create(&thread[i], NULL, work, NULL);
    work(NULL);
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
    for (long i = 0; i < blocks; i++) KEEP(malloc(16));
    static char status[8192];
    FILE *file = fopen("/proc/self/status", "r");
    size_t length = file ? fread(status, 1, sizeof status - 1, file) : 0;
    status[length] = 0;
    char *line = strstr(status, "VmHWM:");
    say("kB=%d\n", line ? atoi(line + 6) : -1);
    return 0;
}
