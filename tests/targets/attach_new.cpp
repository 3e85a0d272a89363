// For each line on stdin it calls six forms of operator new 100 times each, frees each block by a form of operator delete, and prints
// "done". Sizes: 4001 new, 4002 new[], 4003 new with nothrow, 4004 new[] with nothrow, 4096 aligned new, 4160 aligned new[].
#include <new>
#include <unistd.h>

static void *volatile sink;
static const std::align_val_t wide{64};

__attribute__((noinline)) static void *keep(void *block) {
    if (!block) _exit(97);
    *static_cast<volatile char *>(block) = 1;
    sink = block;
    return block;
}

int main() {
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        for (int i = 0; i < 100; i++) {
            void *one = keep(::operator new(4001));
            void *two = keep(::operator new[](4002));
            void *three = keep(::operator new(4003, std::nothrow));
            void *four = keep(::operator new[](4004, std::nothrow));
            void *five = keep(::operator new(4096, wide));
            void *six = keep(::operator new[](4160, wide));
            ::operator delete(one, size_t(4001));
            ::operator delete[](two);
            ::operator delete(three, std::nothrow);
            ::operator delete[](four, std::nothrow);
            ::operator delete(five, wide);
            ::operator delete[](six, size_t(4160), wide);
        }
        if (write(1, "done\n", 5) != 5) return 1;
    }
}
