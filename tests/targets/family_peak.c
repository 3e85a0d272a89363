// Five processes that share a lock and know what all of them hold together. Usage: family_peak SEED [TIMES]; with the number, all
// make this many times as many calls. A block counts once, for as long as any process holds it; a forked process holds what its parent held. Prints the highest sum: peak=BYTES blocks=COUNT, and at its end left=BLOCKS
// left_bytes=BYTES: what was allocated and never freed by the process that allocated it, as far as no other process freed it last. A child
// ends while it has the lock, and the first process unlocks when it has waited for the child.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 150
#define IDS (1 << 20)

static struct shared {
    volatile int lock;
    int next;
    int holders[IDS];
    size_t size[IDS];
    int is_freed[IDS];
    size_t bytes, peak;
    long blocks, peak_blocks, left, left_bytes;
} *shared;
static void *block[BLOCKS];
static int id[BLOCKS], is_own[BLOCKS];
static unsigned long long state;
static int times = 1;

static unsigned random_below(unsigned limit) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % limit;
}

static void lock(void) {
    while (__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

static void unlock(void) { __atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE); }

// The calling process does not hold the block in this place any more.
static void let_go(int i, int by_end) {
    int n = id[i];
    if (is_own[i] && !by_end) shared->is_freed[n] = 1;
    if (--shared->holders[n] > 0) return;
    shared->bytes -= shared->size[n];
    shared->blocks--;
    if (by_end && !shared->is_freed[n]) shared->left++, shared->left_bytes += shared->size[n];
}

static void work(int steps) {
    for (steps *= times; steps > 0; steps--) {
        lock();
        unsigned i = random_below(BLOCKS);
        if (block[i]) {
            free(block[i]);
            block[i] = 0;
            let_go(i, 0);
        } else {
            int n = id[i] = shared->next++;
            if (n >= IDS) abort();
            size_t size = shared->size[n] = 16 + random_below(3000);
            block[i] = malloc(size);
            memset(block[i], 1, size);
            is_own[i] = shared->holders[n] = 1;
            shared->bytes += size, shared->blocks++;
            if (shared->bytes > shared->peak) shared->peak = shared->bytes, shared->peak_blocks = shared->blocks;
        }
        unlock();
    }
}

static void end(void) {
    lock();
    for (int i = 0; i < BLOCKS; i++)
        if (block[i]) let_go(i, 1);
}

static volatile int children;

static void child_ended(int signal) {
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0) {
        children--;
        unlock();
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    state = strtoull(argv[1], 0, 10);
    if (argc > 2) times = atoi(argv[2]);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    signal(SIGCHLD, child_ended);
    work(300);
    for (int child = 0; child < 4; child++) {
        lock();
        for (int i = 0; i < BLOCKS; i++)
            if (block[i]) shared->holders[id[i]]++;
        if (fork() == 0) {
            memset(is_own, 0, sizeof is_own);
            children = 0;
            state += child;
            // The parent unlocks.
            work(300);
            end();
            _exit(0);
        }
        children++;
        unlock();
        work(100);
    }
    while (children > 0) usleep(1000);
    work(200);
    end();
    char line[100];
    int length = snprintf(line, sizeof line, "peak=%zu blocks=%ld left=%ld left_bytes=%ld\n", shared->peak, shared->peak_blocks,
                          shared->left, shared->left_bytes);
    return write(1, line, length) != length;
}
