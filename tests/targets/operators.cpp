// Every form of operator new and delete, in one round more than the first argument says (default 1000). Sizes, with their counts per
// round: 4001 new (2), 4002 new[] (2), 4003 new with nothrow (1), 4004 new[] with nothrow (1), 4096 aligned new (2), 4160 aligned new[]
// (2), 4224 and 4288 aligned new and new[] with nothrow (1 each). All are freed, by every form of delete. Before main, a constructor of
// this program makes and frees 500 blocks of 4005 bytes. Before the last round `new` fails: without a new handler, with one that throws
// bad_alloc, and with one that throws another exception. A second argument (tests use "calm") skips these failures, because mimalloc
// aborts there. Prints the results of the failures and "rounds N".
#include <cstdlib>
#include <new>
#include <stdexcept>
#include "say.h"

static const std::align_val_t wide{64};
static volatile std::size_t huge = std::size_t(1) << 62;
static int handled;

__attribute__((constructor(101))) static void construct() {
    static void *blocks[500];
    for (void *&block : blocks) block = ::operator new(4005);
    for (void *block : blocks) ::operator delete(block);
}

NOINLINE static void *keep(void *block) {
    if (!block) std::exit(97);
    *static_cast<volatile char *>(block) = 1;
    KEEP(block);
    return block;
}

NOINLINE static void round() {
    void *plain = keep(::operator new(4001)), *sized = keep(::operator new(4001));
    void *array = keep(::operator new[](4002)), *sized_array = keep(::operator new[](4002));
    void *nothrow = keep(::operator new(4003, std::nothrow));
    void *array_nothrow = keep(::operator new[](4004, std::nothrow));
    void *aligned = keep(::operator new(4096, wide)), *sized_aligned = keep(::operator new(4096, wide));
    void *aligned_array = keep(::operator new[](4160, wide)), *sized_aligned_array = keep(::operator new[](4160, wide));
    void *aligned_nothrow = keep(::operator new(4224, wide, std::nothrow));
    void *aligned_array_nothrow = keep(::operator new[](4288, wide, std::nothrow));
    ::operator delete(plain);
    ::operator delete(sized, std::size_t(4001));
    ::operator delete[](array);
    ::operator delete[](sized_array, std::size_t(4002));
    ::operator delete(nothrow, std::nothrow);
    ::operator delete[](array_nothrow, std::nothrow);
    ::operator delete(aligned, wide);
    ::operator delete(sized_aligned, std::size_t(4096), wide);
    ::operator delete[](aligned_array, wide);
    ::operator delete[](sized_aligned_array, std::size_t(4160), wide);
    ::operator delete(aligned_nothrow, wide, std::nothrow);
    ::operator delete[](aligned_array_nothrow, wide, std::nothrow);
    ::operator delete(nullptr);
}

template <typename Exception, typename Call>
static bool throws(Call call) {
    try {
        keep(call());
    } catch (const Exception &) {
        return true;
    }
    return false;
}

static void give_up() {
    handled++;
    throw std::bad_alloc();
}

static void complain() {
    handled++;
    throw std::runtime_error("out of patience");
}

static void failures() {
    auto plain = [] { return ::operator new(huge); };
    auto array = [] { return ::operator new[](huge); };
    auto aligned = [] { return ::operator new(huge, wide); };
    auto aligned_array = [] { return ::operator new[](huge, wide); };
    say("bad_alloc %d %d %d %d\n", throws<std::bad_alloc>(plain), throws<std::bad_alloc>(array),
        throws<std::bad_alloc>(aligned), throws<std::bad_alloc>(aligned_array));
    say("null %d\n", ::operator new(huge, std::nothrow) == nullptr);
    std::set_new_handler(give_up);
    bool caught = throws<std::bad_alloc>(plain);
    say("handler that gives up %d, called %d\n", caught, handled);
    handled = 0;
    std::set_new_handler(complain);
    caught = throws<std::runtime_error>(plain);
    say("handler that throws %d, called %d\n", caught, handled);
    std::set_new_handler(nullptr);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
    for (int i = 0; i < rounds; i++) round();
    if (argc <= 2) failures();
    round();
    say("rounds %d\n", rounds + 1);
    return 0;
}
