/* Contexts whose stacks are unmapped by their successor. There are 1000 stacks of different sizes, most of them at an
 * address where another stack was before, with 10 blocks each. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <ucontext.h>
#include "../blocks/zoo.h"

static ucontext_t home, there;
static long sum;

__attribute__((noinline)) static long deeper(int depth) {
    volatile char pad[512];
    pad[0] = (char)depth;
    long got = depth ? deeper(depth - 1) : zoo_blocks(10);
    return got + pad[0] - (char)depth;
}

static void body(int depth) {
    sum += deeper(depth);
}

int main(void) {
    zoo_ready();
    void *before = NULL;
    size_t size_before = 0;
    for (int i = 0; i < 1000; i++) {
        size_t size = (size_t)(16 + 4 * (i % 7)) << 10;
        void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (before)
            munmap(before, size_before);
        getcontext(&there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = size;
        there.uc_link = &home;
        makecontext(&there, (void (*)(void))body, 1, i % 11);
        swapcontext(&home, &there);
        before = stack;
        size_before = size;
    }
    printf("%ld\n", sum);
    return 0;
}
