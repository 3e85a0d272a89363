// Many threads that together hold many live blocks and replace random ones, as a server with a large cache does.
// Arguments: threads, live blocks, thousands of events (an allocation or a free). LIVE and EVENTS are totals for all threads.
//
// Each thread first allocates its share of the live blocks and then replaces random ones of these until it has made its share
// of the events, so the events must be at least as many as the live blocks. The blocks live until the program ends. Sizes are 16
// to 143 bytes, and up to 64 bytes of each block are written. The blocks are allocated at the bottom of one of eight call paths
// of 16 frames; the path changes every 100 blocks. With 2 million live blocks nearly every access misses the processor's caches, in
// this program and in a recorder's table of live blocks.
//
// Prints the number of events and the CPU time of this process. A profiler's library in this process is part of that
// time, a profiler's other processes are not.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/resource.h>
#include <vector>

struct Worker {
    uint64_t state;
    std::vector<void *> held;
    size_t filled;
    long replacements;
    pthread_t thread;
};

static const int DEPTH = 16;

static inline uint64_t next(uint64_t &state) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static inline void *allocate(uint64_t random) {
    size_t size = 16 + (random >> 32) % 128;
    void *block = malloc(size);
    memset(block, 1, size < 64 ? size : 64);
    return block;
}

__attribute__((noinline)) static void bottom(Worker *worker) {
    for (int i = 0; i < 100; i++) {
        uint64_t random = next(worker->state);
        if (worker->filled < worker->held.size()) {
            worker->held[worker->filled++] = allocate(random);
        } else if (worker->replacements-- > 0) {
            void *&place = worker->held[random % worker->held.size()];
            free(place);
            place = allocate(random);
        }
    }
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
    while (worker->filled < worker->held.size() || worker->replacements > 0) {
        switch (next(worker->state) >> 33 & 7) {
        case 0: descend<0>(worker, DEPTH); break;
        case 1: descend<1>(worker, DEPTH); break;
        case 2: descend<2>(worker, DEPTH); break;
        case 3: descend<3>(worker, DEPTH); break;
        case 4: descend<4>(worker, DEPTH); break;
        case 5: descend<5>(worker, DEPTH); break;
        case 6: descend<6>(worker, DEPTH); break;
        default: descend<7>(worker, DEPTH);
        }
    }
    return nullptr;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 32;
    long live = argc > 2 ? atol(argv[2]) : 2000000;
    long events = (argc > 3 ? atol(argv[3]) : 16000) * 1000;
    if (threads < 1 || live < threads || events < live) {
        fprintf(stderr, "live_blocks: needs at least 1 thread, 1 live block per thread, and 1 event per live block\n");
        return 2;
    }
    std::vector<Worker> workers(threads);
    long made = 0;
    for (long i = 0; i < threads; i++) {
        Worker &worker = workers[i];
        worker.state = 0x9e3779b97f4a7c15u * (i + 1);
        worker.held.resize(live / threads);
        worker.replacements = (events - live) / threads / 2;
        made += worker.held.size() + 2 * worker.replacements;
    }
    for (Worker &worker : workers) pthread_create(&worker.thread, nullptr, work, &worker);
    for (Worker &worker : workers) pthread_join(worker.thread, nullptr);
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](timeval time) { return time.tv_sec + time.tv_usec / 1e6; };
    printf("%ld events, %.6f s of CPU\n", made, seconds(used.ru_utime) + seconds(used.ru_stime));
    return 0;
}
