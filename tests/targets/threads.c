/* Threads that pass their blocks to each other. Arguments: threads (8), total events (1000000).
 *
 * Each thread allocates blocks of 16 to 515 bytes. It frees half of them itself and puts each of the others into a random mailbox. It
 * frees the block that was in that mailbox, whichever thread allocated it. Every call is counted. At the end main frees what is left in
 * half of the mailboxes, and prints:   allocations=A bytes=B frees=F left=L left_bytes=M
 * The trace must have the same numbers for blocks allocated by this file. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include "say.h"

#define MAILBOXES 1024
static _Atomic(uint64_t *) mailbox[MAILBOXES];
static atomic_ullong allocations, bytes, frees, freed_bytes;
static long per_thread;

/* The block's first word is its size, so that the thread that frees it can count its bytes. */
NOINLINE static uint64_t *take(size_t size) {
    uint64_t *made = malloc(size);
    FRAME();
    made[0] = size;
    return made;
}

static void *work(void *argument) {
    uint64_t state = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u + 1;
    unsigned long long a = 0, ab = 0, f = 0, fb = 0;
    for (long done = 0; done < per_thread;) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t size = 16 + (state >> 20) % 500;
        uint64_t *made = take(size);
        a++, ab += size, done++;
        if (state & 1) {
            made = atomic_exchange(&mailbox[(state >> 40) % MAILBOXES], made);
            if (made == NULL) continue;
        }
        f++, fb += made[0], done++;
        free(made);
    }
    allocations += a;
    bytes += ab;
    frees += f;
    freed_bytes += fb;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    per_thread = (argc > 2 ? atol(argv[2]) : 1000000) / threads;
    static pthread_t thread[256];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < MAILBOXES; i += 2) {
        uint64_t *left = mailbox[i];
        if (left == NULL) continue;
        frees++;
        freed_bytes += left[0];
        free(left);
    }
    say("allocations=%llu bytes=%llu frees=%llu left=%llu left_bytes=%llu\n", allocations, bytes, frees,
        allocations - frees, bytes - freed_bytes);
    return 0;
}
