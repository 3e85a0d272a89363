// Has what formats of other tools can hold: two threads, a function that is inlined, blocks that stay and blocks that go.
//   thread "first" (main)   300 blocks of 64 bytes from `quick`, each freed at once
//                           3 blocks of 1000 bytes from `keep`, which is inlined into `fill`; never freed
//   thread "second"         50 blocks of 40 bytes from `hand_over`, which the first thread frees after the second one has ended,
//                           and 1 block of 7 bytes from `lose`, never freed
// Allocations of the C++ library and of libc besides these are in the trace too. Prints "exported done".
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

static void *handed[50];

static inline __attribute__((always_inline)) void *keep(void) {
    void *made = malloc(1000);
    KEEP(made);
    return made;
}

NOINLINE static void fill(void) {
    for (int i = 0; i < 3; i++) keep();
    FRAME();
}

NOINLINE static void quick(void) {
    for (int i = 0; i < 300; i++) {
        void *volatile made = malloc(64);
        free(made);
    }
    FRAME();
}

NOINLINE static void hand_over(void) {
    for (void *&slot : handed) slot = malloc(40);
    FRAME();
}

NOINLINE static void lose(void) {
    KEEP(malloc(7));
    FRAME();
}

static void *second(void *) {
    pthread_setname_np(pthread_self(), "second");
    hand_over();
    lose();
    return nullptr;
}

int main() {
    pthread_setname_np(pthread_self(), "first");
    quick();
    fill();
    pthread_t thread;
    if (pthread_create(&thread, nullptr, second, nullptr) != 0) return 1;
    pthread_join(thread, nullptr);
    for (void *block : handed) free(block);
    say("exported done\n");
    return 0;
}
