/* A library whose function OUTER calls INNER, which allocates. Built twice, with the same code and different names for both. */
#include <stdlib.h>

__attribute__((noinline)) void *INNER(int bytes) {
    void *block = malloc(bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

void *OUTER(int bytes) {
    void *block = INNER(bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
