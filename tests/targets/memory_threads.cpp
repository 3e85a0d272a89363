// 64 threads, each with blocks of 16 to 2000 bytes in an arena of its own, which it frees and renews all the time. Prints "ready".
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static void work(unsigned seed) {
    std::mt19937 chance(seed);
    std::vector<std::unique_ptr<char[]>> blocks(3000);
    for (;;) {
        for (int i = 0; i < 300; i++) {
            size_t size = 16 + chance() % 1985;
            auto &block = blocks[chance() % blocks.size()];
            block.reset(new char[size]);
            block[0] = block[size - 1] = 1;
        }
        usleep(10000);
    }
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 64; i++)
        threads.emplace_back(work, i);
    puts("ready");
    fflush(stdout);
    for (auto &thread : threads)
        thread.join();
}
