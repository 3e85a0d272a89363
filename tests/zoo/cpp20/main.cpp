// C++20 coroutines, whose frames are on the heap. Four threads resume them in turns: 100 * 10 * 10 blocks.
#include <coroutine>
#include <thread>
#include <vector>
#include "../blocks/zoo.h"

struct Task {
    struct promise_type {
        long value = 0;
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(long v) { value = v; return {}; }
        void return_void() {}
        void unhandled_exception() { std::abort(); }
    };
    std::coroutine_handle<promise_type> handle;
};

static Task body() {
    long sum = 0;
    for (int i = 0; i < 10; i++) {
        sum += zoo_blocks(10);
        co_yield sum;
    }
}

int main() {
    std::vector<Task> tasks;
    for (int i = 0; i < 100; i++)
        tasks.push_back(body());
    zoo_ready();
    for (int turn = 0; turn < 10; turn++) {
        std::vector<std::thread> threads;
        for (int part = 0; part < 4; part++)
            threads.emplace_back([&, part] {
                for (int i = part; i < 100; i += 4)
                    tasks[i].handle.resume();
            });
        for (auto &thread : threads)
            thread.join();
    }
    long sum = 0;
    for (auto &task : tasks) {
        sum += task.handle.promise().value;
        task.handle.destroy();
    }
    std::printf("%ld\n", sum);
}
