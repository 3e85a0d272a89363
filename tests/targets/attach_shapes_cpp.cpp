// Prints "ready". For each line on stdin it allocates and frees through containers, virtual calls, templates and recursion, and
// prints "done". For each line, 50 of the blocks have 777 bytes, and only deep() allocates those.
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual std::string name() const = 0;
};
struct Circle : Shape {
    std::string name() const override { return std::string(60, 'c'); }
};
struct Square : Shape {
    std::string name() const override { return std::string(90, 's'); }
};

__attribute__((noinline)) static void *deep(int levels) {
    if (levels == 0) return malloc(777);
    void *made = deep(levels - 1);
    __asm__ volatile("" : : "r"(made) : "memory");
    return made;
}

template <typename T> __attribute__((noinline)) static size_t fill(int count) {
    std::vector<T> list;
    for (int i = 0; i < count; i++) list.push_back(T(i));
    return list.size();
}

__attribute__((noinline)) static void work() {
    std::map<std::string, std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 30; i++) {
        std::string key = "a rather long key that is not kept in place " + std::to_string(i);
        if (i % 2) shapes[key] = std::make_unique<Circle>();
        else shapes[key] = std::make_unique<Square>();
    }
    size_t length = 0;
    for (auto &[key, shape] : shapes) length += shape->name().size();
    std::function<void(int)> count = [&](int n) { length += fill<int>(n) + fill<double>(n) + fill<long>(n); };
    for (int i = 0; i < 20; i++) count(i);
    for (int i = 0; i < 50; i++) free(deep(i % 10));
    if (length < 100) abort();
}

int main() {
    if (write(1, "ready\n", 6) != 6) return 1;
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        work();
        if (write(1, "done\n", 5) != 5) return 1;
    }
}
