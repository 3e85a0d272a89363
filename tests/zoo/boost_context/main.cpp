// 50 fibers of Boost.Context take turns on stacks with a guard page, with an exception in each turn: 50 * 20 * 10
// blocks.
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <stdexcept>
#include <vector>
#include "../blocks/zoo.h"

namespace context = boost::context;

int main() {
    long sum = 0;
    std::vector<context::fiber> fibers;
    for (int i = 0; i < 50; i++) {
        fibers.emplace_back(std::allocator_arg, context::protected_fixedsize_stack(64 << 10), [&sum](context::fiber &&from) {
            for (int turn = 0; turn < 20; turn++) {
                from = std::move(from).resume();
                try {
                    sum += zoo_blocks(10);
                    throw std::runtime_error("thrown");
                } catch (const std::runtime_error &) {
                }
            }
            return std::move(from);
        });
        fibers.back() = std::move(fibers.back()).resume();
    }
    zoo_ready();
    for (int turn = 0; turn < 20; turn++)
        for (auto &fiber : fibers)
            fiber = std::move(fiber).resume();
    std::printf("%ld\n", sum);
}
