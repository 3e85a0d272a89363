/* The first argument says how many functions (at most 12) call `pool_get`, each with a size of its own (1000, 1100 and so on), and keep the block. The first of them also
 * makes `pool_get` call `refill`, which keeps 50000 bytes. From 10 users on, `pool_get` is a wrapper of the allocator by its numbers. Prints nothing.
 */
#include <stdlib.h>
#include "say.h"

NOINLINE static void refill(void) {
    KEEP(malloc(50000));
    FRAME();
}
NOINLINE static void pool_get(int size, int is_empty) {
    if (is_empty) refill();
    KEEP(malloc(size));
    FRAME();
}
#define USER(N) \
    NOINLINE static void user_##N(void) { \
        pool_get(1000 + 100 * N, N == 0); \
        FRAME(); \
    }
USER(0) USER(1) USER(2) USER(3) USER(4) USER(5) USER(6) USER(7) USER(8) USER(9) USER(10) USER(11)

int main(int argc, char **argv) {
    void (*users[])(void) = {user_0, user_1, user_2, user_3, user_4, user_5, user_6, user_7, user_8, user_9, user_10, user_11};
    int count = argc > 1 ? atoi(argv[1]) : 12;
    for (int i = 0; i < count && i < 12; i++) users[i]();
    return 0;
}
