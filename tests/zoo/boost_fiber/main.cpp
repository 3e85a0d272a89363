// Fibers of Boost.Fiber, which its scheduler switches, on two threads: 2 * 50 * 10 * 10 blocks.
#include <boost/fiber/all.hpp>
#include <atomic>
#include <thread>
#include <vector>
#include "../blocks/zoo.h"

static std::atomic<long> sum;

static void work() {
    std::vector<boost::fibers::fiber> fibers;
    for (int i = 0; i < 50; i++)
        fibers.emplace_back([] {
            for (int turn = 0; turn < 10; turn++) {
                sum += zoo_blocks(10);
                boost::this_fiber::yield();
            }
        });
    for (auto &fiber : fibers)
        fiber.join();
}

int main() {
    boost::fibers::fiber([] {}).join();
    zoo_ready();
    std::thread other(work);
    work();
    other.join();
    std::printf("%ld\n", sum.load());
}
