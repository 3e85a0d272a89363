// A small order system with the three problems that people look for with a heap profiler, in 8 phases. Prints "72000 orders, checksum N".
//
//   the peak   img::Pipeline::decode and ::blur: 60 tiles of 262144 bytes each, 15728640 bytes a function, held at once, then freed
//   the leak   leaky::makeToken: 8000 tokens of 55 bytes, none freed, all along; leaky::openSession: 800 of 8000 sessions of 208 bytes kept
//   the churn  report::formatRow: 72000 rows, each of 4 char vectors (40 bytes) and 1 vector (64 bytes), freed with the row: 360000 blocks
//              report::checksum: 72000 vectors of 32 bytes, each freed before the next allocation (temporary)
//   a cache    db::Cache::insert: 2000 entries of 128 bytes, early, held to the end: bounded, not a leak
//
// Vectors are created at their final size, so that the growth strategy of the library does not change the numbers.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

static void pause_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

namespace db {
struct Cache {
    void *entries[2000];
    [[gnu::noinline]] void insert(int key) { entries[key] = std::malloc(128); }
};
static Cache cache;
}

namespace img {
struct Pipeline {
    static constexpr int TILES = 60;
    static constexpr size_t TILE = 262144;
    using Tile = std::vector<unsigned char>;
    Tile decoded[TILES];
    Tile blurred[TILES];
    [[gnu::noinline]] void decode() {
        for (auto &tile : decoded) tile = Tile(TILE, 7);
    }
    [[gnu::noinline]] void blur() {
        for (int i = 0; i < TILES; i++) blurred[i] = decoded[i];
    }
    [[gnu::noinline]] void release() {
        for (auto &tile : decoded) Tile().swap(tile);
        for (auto &tile : blurred) Tile().swap(tile);
    }
};
}

namespace leaky {
struct Session {
    char name[208];
};
// Volatile, because otherwise the compiler sees that the result is never used and removes the calls.
static void *volatile kept[16000];
static int count = 0;
[[gnu::noinline]] static void makeToken() { kept[count++] = std::malloc(55); }
[[gnu::noinline]] static void openSession(int id) {
    auto *session = static_cast<Session *>(std::malloc(sizeof(Session)));
    kept[count] = session;
    if (id % 10 == 0)
        count++;
    else
        std::free(session);
}
}

namespace report {
[[gnu::noinline]] static unsigned checksum(unsigned row) {
    std::vector<unsigned> values(8, row);
    return values[row % 8];
}
[[gnu::noinline]] static unsigned formatRow(unsigned row) {
    std::vector<char> id(40, 'i'), customer(40, 'c'), product(40, 'p'), total(40, 't');
    std::vector<unsigned> columns(16, row);
    unsigned at = row % 16;
    return columns[at] + static_cast<unsigned>(id[at] + customer[at] + product[at] + total[at]);
}
}

[[gnu::noinline]] static unsigned write_report(unsigned from, unsigned to) {
    unsigned sum = 0;
    for (unsigned row = from; row < to; row++) sum += report::formatRow(row) + report::checksum(row);
    return sum;
}

// The argument is the number of phases (8). `orders 6` runs only six, so 6000 tokens and 600 sessions are kept.
int main(int count, char **words) {
    int phases = count > 1 ? std::atoi(words[1]) : 8;
    unsigned sum = 0;
    for (int key = 0; key < 2000; key++) db::cache.insert(key);
    auto pipeline = std::make_unique<img::Pipeline>();
    for (int phase = 0; phase < phases; phase++) {
        for (int id = 0; id < 1000; id++) {
            leaky::makeToken();
            leaky::openSession(id);
        }
        if (phase == 4) {
            pipeline->decode();
            pause_a_little();
            pipeline->blur();
            pause_a_little();
            pipeline->release();
        }
        if (phase == 2) {
            unsigned first = 0, second = 0;
            std::thread one([&] { first = write_report(0, 24000); });
            std::thread two([&] { second = write_report(24000, 48000); });
            one.join();
            two.join();
            sum += first + second;
        }
        if (phase == 3) sum += write_report(48000, 72000);
        pause_a_little();
    }
    std::printf("%d orders, checksum %u\n", 72000, sum);
    return 0;
}
