/* Threads that allocate at 16 places, the same calls in every run. Arguments: threads (4), calls per thread (100000).
 *
 * Each thread keeps up to 500 blocks in places of its own, and frees what is in a place before it puts a new block there. What is left at
 * the end is leaked. At its end the program prints "made N", the allocations of all threads. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include "say.h"

#define PLACES 500
static long calls;

#define SITE(n)                                      \
    NOINLINE static void *site_##n(size_t size) {    \
        void *made = malloc(size + n);               \
        FRAME();                                     \
        return made;                                 \
    }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
SITE(8) SITE(9) SITE(10) SITE(11) SITE(12) SITE(13) SITE(14) SITE(15)

static void *(*const sites[])(size_t) = {site_0, site_1, site_2,  site_3,  site_4,  site_5,  site_6,  site_7,
                                         site_8, site_9, site_10, site_11, site_12, site_13, site_14, site_15};

static void *work(void *argument) {
    uint64_t state = (uint64_t)(intptr_t)argument * 2 + 1;
    static __thread void *places[PLACES];
    for (long i = 0; i < calls; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        void **place = &places[(state >> 33) % PLACES];
        free(*place);
        *place = sites[(state >> 29) % 16]((state >> 40) % 64 * 16);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    calls = argc > 2 ? atol(argv[2]) : 100000;
    static pthread_t thread[64];
    for (intptr_t i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    say("made %lld\n", (long long)threads * calls);
    return 0;
}
