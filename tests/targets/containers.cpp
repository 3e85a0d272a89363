// C++ containers without realloc: every site allocates through operator new.
// 200 map nodes, 100 heap strings of 100 characters, one vector that grows by doubling from 1 to 1024 ints, a deque, and a
// string of 70,000 characters. The test takes the numbers from DHAT, except for the one leak: one int[250] (1000 bytes) from
// `leak`. Prints "containers 200 4357".
#include <deque>
#include <map>
#include <string>
#include <vector>
#include "say.h"

NOINLINE static int *leak() {
    int *made = new int[250];
    made[0] = 1;
    FRAME();
    return made;
}

NOINLINE static size_t maps() {
    std::map<int, std::string> tree;
    for (int i = 0; i < 200; i++) tree[i] = i % 2 ? std::string(100, 'x') : std::string("short");
    return tree.size();
}

NOINLINE static size_t vectors() {
    std::vector<int> numbers;
    for (int i = 0; i < 1000; i++) numbers.push_back(i);
    std::deque<long> queue;
    for (long i = 0; i < 5000; i++) {
        queue.push_back(i);
        if (i % 3 == 0) queue.pop_front();
    }
    return numbers.capacity() + queue.size();
}

int main() {
    KEEP(leak());
    size_t first = maps(), second = vectors();
    std::string *top = new std::string(70000, 'y');  // the strict maximum
    KEEP(top);
    delete top;
    say("containers %zu %zu\n", first, second);
    return 0;
}
