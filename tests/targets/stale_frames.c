/* Two stacks whose words differ only in a frame pointer. `main` calls `direct` or `detour` from one place; `detour` calls
 * `direct`. The second time `direct` takes so much memory from its stack that the leaf stands where it stood below `detour`,
 * and the return addresses of the detour still stand in that memory, which nothing writes to.
 * A walk is right only if it follows the frame pointers that are there now.
 *
 * Own blocks: 20 of 1001 and 20 of 2001 by way of `detour`, 20 of 1002 and 20 of 2002 without it; all freed. The leaf of those of
 * 100x saves the frame pointer, that of those of 200x leaves it as it is. */
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>
#include "say.h"

typedef void Leaf(size_t size);
static uintptr_t place;

__attribute__((optimize("no-omit-frame-pointer"))) NOINLINE static void saves(size_t size) {
    place = (uintptr_t)__builtin_frame_address(0);
    void *block = malloc(size);
    KEEP(block);
    free(block);
    FRAME();
}

/* Its frame begins where its argument lies. */
__attribute__((optimize("omit-frame-pointer"))) NOINLINE static void leaves(size_t size) {
    volatile char here;
    place = (uintptr_t)&here;
    void *block = malloc(size);
    KEEP(block);
    free(block);
    FRAME();
}

NOINLINE static void direct(Leaf *leaf, size_t room, size_t size) {
    char *unused = alloca(room);
    KEEP(unused);
    leaf(size);
    FRAME();
}

NOINLINE static void detour(Leaf *leaf, size_t room, size_t size) {
    /* So that what `direct` saves when it is called without a detour is above the stale return address. */
    volatile char apart[256];
    KEEP(apart);
    direct(leaf, room, size);
    FRAME();
}

typedef void Way(Leaf *, size_t, size_t);

NOINLINE static uintptr_t go(Way *volatile way, Leaf *leaf, size_t room, size_t size) {
    way(leaf, room, size);
    FRAME();
    return place;
}

int main(void) {
    Leaf *leaf[] = {saves, leaves};
    int met = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t base = 1000 * (i + 1);
        uintptr_t above = go(direct, leaf[i], 64, base + 3);
        uintptr_t below = go(detour, leaf[i], 64, base + 4);
        Way *way[] = {detour, direct};
        size_t room[] = {64, 64 + (above - below)};
        uintptr_t stood[2];
        for (int call = 0; call < 40; call++) {
            size_t which = call % 2;
            stood[which] = go(way[which], leaf[i], room[which], base + 1 + which);
            met += which == 1 && stood[0] == stood[1];
        }
    }
    say("%d met\n", met);
    return met == 40 ? 0 : 1;
}
