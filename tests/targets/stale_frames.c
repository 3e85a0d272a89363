/* Two stacks whose words differ only in a frame pointer. `go` calls `direct` or `detour` from one place, and
 * `detour` calls `direct`. When `go` calls `direct` itself, `direct` takes enough stack memory that the leaf is at the
 * same address as when it is called through `detour`. That memory still contains the return addresses of the detour,
 * because nothing has overwritten them. A walk is right only if it follows the current frame pointers.
 *
 * Own blocks: 20 of 1001 and 20 of 2001 through `detour`, 20 of 1002 and 20 of 2002 without it, and one each of
 * 1003, 1004, 2003 and 2004, which measure addresses; all freed. The leaf that allocates 1001 to 1004 bytes saves the frame pointer. The
 * leaf that allocates 2001 to 2004 leaves it unchanged. Prints "40 met". */
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

/* It has no frame pointer of its own, so the address of a local variable tells where its frame is. */
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
    /* Makes what `direct` saves, when it is called without a detour, lie above the stale return address. */
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
