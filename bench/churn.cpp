// Calls malloc and free as fast as possible and does little else. This is the worst case for a recorder.
// With -DMIMALLOC it calls mimalloc's functions. Arguments: threads, depth of the stack, total millions of events (an allocation or a free).
//
// Each thread holds up to 4000 blocks and replaces random ones: 100 of them at the bottom of one of eight call paths of
// the given depth, then 100 on a path that is chosen at random again. So most stacks repeat, but not all. Sizes are 16 to
// 1415 bytes. Like other programs, it writes into its blocks (up to two cache lines). An event takes 25 to 30 ns without
// a recorder, and 9 to 11 times that under KDE's heaptrack on one thread.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#ifdef MIMALLOC
#include <mimalloc.h>
#define malloc mi_malloc
#define free mi_free
#endif

struct Worker {
    uint64_t state;
    long left;
    void *held[4000];
    pthread_t thread;
};

static int depth;
static long per_thread;

static inline uint64_t next(uint64_t &state) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

__attribute__((noinline)) static void bottom(Worker *worker) {
    for (int i = 0; i < 100; i++) {
        uint64_t random = next(worker->state);
        void *&place = worker->held[random % 4000];
        free(place);
        size_t size = 16 + (random >> 32) % 1400;
        place = malloc(size);
        memset(place, 1, size < 128 ? size : 128);
    }
    worker->left -= 200;
}

template <int path> __attribute__((noinline)) static void descend(Worker *worker, int level) {
    if (level <= 1) {
        bottom(worker);
    } else {
        descend<path>(worker, level - 1);
    }
    asm volatile("" ::: "memory");  // keeps the call from becoming a tail call
}

static void *work(void *argument) {
    Worker *worker = static_cast<Worker *>(argument);
    while (worker->left > 0) {
        switch (next(worker->state) >> 33 & 7) {
        case 0: descend<0>(worker, depth); break;
        case 1: descend<1>(worker, depth); break;
        case 2: descend<2>(worker, depth); break;
        case 3: descend<3>(worker, depth); break;
        case 4: descend<4>(worker, depth); break;
        case 5: descend<5>(worker, depth); break;
        case 6: descend<6>(worker, depth); break;
        default: descend<7>(worker, depth);
        }
    }
    return nullptr;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    depth = argc > 2 ? atoi(argv[2]) : 16;
    per_thread = (argc > 3 ? atol(argv[3]) : 10) * 1000000 / threads;
    static Worker workers[64];
    for (int i = 0; i < threads; i++) {
        workers[i].state = 0x9e3779b97f4a7c15u * (i + 1);
        workers[i].left = per_thread;
        pthread_create(&workers[i].thread, nullptr, work, &workers[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, nullptr);
    return 0;
}
