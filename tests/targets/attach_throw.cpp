// Two threads throw exceptions through functions that hold blocks, all the time. A third thread cancels threads while they
// allocate. Prints "ready". When stdin ends, it prints "right ROUNDS" and ends. If a check fails, it prints "wrong" and the
// name of the check, and ends with code 97 at once.
//
// A round: an exception with a text of 100 characters unwinds 8 calls, each of which owns a block of 3001 bytes. A `new`
// and an aligned `new` of more memory than there is throw, and such a `new` with nothrow returns null. Two aligned `new` of
// 3072 bytes succeed. So in each round operator new succeeds 8 times with 3001 bytes and 2 times with 3072.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

static std::atomic<bool> stop;
static std::atomic<long> rounds, cleaned;
static volatile size_t huge = size_t(1) << 62;

[[noreturn]] static void wrong(const char *what) {
    std::string line = std::string("wrong ") + what + "\n";
    if (write(1, line.data(), line.size()) < 0) _exit(98);
    _exit(97);
}

struct Counted {
    explicit Counted(long &count) : count(count) { count++; }
    ~Counted() { count--; }
    long &count;
};

__attribute__((noinline)) static void unwound(int depth, long &alive) {
    Counted guard(alive);
    char *block = new char[3001];
    block[0] = 'x';
    struct Owner {
        char *block;
        ~Owner() { delete[] block; }
    } owner{block};
    if (depth == 0) throw std::runtime_error(std::string(100, 'e'));
    unwound(depth - 1, alive);
}

static void one_round() {
    long alive = 0;
    bool caught = false;
    try {
        unwound(7, alive);
    } catch (const std::runtime_error &error) {
        caught = std::strlen(error.what()) == 100;
    }
    if (!caught || alive != 0) wrong("unwinding");
    caught = false;
    try {
        char *volatile never = new char[huge];
        delete[] never;
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    if (!caught) wrong("bad_alloc");
    caught = false;
    try {
        Counted guard(alive);
        void *volatile never = ::operator new(huge, std::align_val_t(64));
        ::operator delete(never, std::align_val_t(64));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    if (!caught || alive != 0) wrong("aligned bad_alloc");
    if (new (std::nothrow) char[huge] != nullptr) wrong("nothrow");
    for (int i = 0; i < 2; i++) {
        void *aligned = ::operator new(3072, std::align_val_t(256));
        if (reinterpret_cast<size_t>(aligned) % 256 != 0) wrong("alignment");
        ::operator delete(aligned, std::align_val_t(256));
    }
    rounds++;
}

static void *work(void *) {
    while (!stop) one_round();
    return nullptr;
}

static void *cancelled(void *) {
    struct Cleaner {
        ~Cleaner() { cleaned++; }
    } cleaner;
    for (;;) {
        std::vector<std::string> texts(20, std::string(200, 't'));
        pthread_testcancel();
    }
    return nullptr;
}

static void *canceller(void *) {
    for (long i = 1; !stop; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, cancelled, nullptr);
        usleep(2000);
        pthread_cancel(thread);
        void *result;
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED || cleaned != i) wrong("cancellation");
    }
    return nullptr;
}

int main() {
    pthread_t threads[3];
    pthread_create(&threads[0], nullptr, work, nullptr);
    pthread_create(&threads[1], nullptr, work, nullptr);
    pthread_create(&threads[2], nullptr, canceller, nullptr);
    if (write(1, "ready\n", 6) != 6) return 1;
    char byte;
    while (read(0, &byte, 1) == 1) {}
    stop = true;
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    std::string line = "right " + std::to_string(rounds) + "\n";
    return write(1, line.data(), line.size()) < 0;
}
