/* Functions that are known by name, file and line, one of them inlined into another.
 *
 *   named            once: 3 allocations of 1111 bytes by early(), one of them through inlined(), none freed
 *   named SECONDS    these 3 allocations ten times a second; after a quarter of the time also 2222 bytes by late() each time
 *
 * Prints nothing.
 */
#include <cstdlib>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

namespace shelf {
static void *volatile kept;

inline __attribute__((always_inline)) void inlined() {
    kept = malloc(1111); // line: inlined
    asm volatile("" ::: "memory");
}

NOINLINE void early() {
    kept = malloc(1111); // line: early 1
    asm volatile("" ::: "memory");
    inlined(); // line: early 2
    kept = malloc(1111); // line: early 3
    asm volatile("" ::: "memory");
}

NOINLINE void late() {
    kept = malloc(2222); // line: late
    asm volatile("" ::: "memory");
}
} // namespace shelf

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) * 10 : 1;
    for (int round = 0; round < rounds; round++) {
        shelf::early(); // line: main
        if (round >= rounds / 4 && rounds > 1) shelf::late(); // line: main late
        if (rounds > 1) usleep(100000);
    }
}
