// left_operators throw|jump: resizes 1000 blocks from 100 to 5001 bytes with `mi_new_realloc` of libfailing.so, and frees them. During
// each resize it calls `mi_new`, which it leaves by an exception (throw) or by longjmp (jump). Prints "left 1000". The exception is
// allocated before that call, because hooks that are three levels deep are not recorded.
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <cxxabi.h>
#include <typeinfo>
#include "say.h"

extern "C" {
extern void (*mi_failed)(void);
extern void (*mi_resizing)(void);
void *mi_malloc(size_t);
void mi_free(void *);
void *mi_new(size_t);
void *mi_new_realloc(void *, size_t);
}

static jmp_buf before;
static int left;
static void *exception;

static void fail_by_exception() {
    abi::__cxa_throw(exception, const_cast<std::type_info *>(&typeid(int)), nullptr);
}
static void fail_by_jump() { longjmp(before, 1); }

static void leave_by_exception() {
    exception = abi::__cxa_allocate_exception(sizeof(int));
    *static_cast<int *>(exception) = 1;
    try {
        KEEP(mi_new(1));
    } catch (int one) {
        left += one;
    }
}
static void leave_by_jump() {
    if (setjmp(before) == 0) KEEP(mi_new(1));
    left++;
}

int main(int argc, char **argv) {
    bool is_jump = argc == 2 && !strcmp(argv[1], "jump");
    mi_failed = is_jump ? fail_by_jump : fail_by_exception;
    mi_resizing = is_jump ? leave_by_jump : leave_by_exception;
    for (int i = 0; i < 1000; i++) mi_free(mi_new_realloc(mi_malloc(100), 5001));
    say("left %d\n", left);
    return left == 1000 ? 0 : 1;
}
