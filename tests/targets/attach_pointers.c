/* Keeps the addresses of malloc and free that are in its import table. The line "take" on stdin reads these
 * addresses again. For any other line it allocates and frees 100 blocks of 3001 bytes through the kept addresses.
 * Prints "done" after each line. */
#include <stdlib.h>
#include "say.h"

static void *(*volatile make)(size_t);
static void (*volatile drop)(void *);

int main(void) {
    char byte, first = 0;
    make = malloc;
    drop = free;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') {
            if (!first) first = byte;
            continue;
        }
        if (first == 't') {
            make = malloc;
            drop = free;
        } else {
            for (int i = 0; i < 100; i++) {
                void *made = make(3001);
                if (!made) return 1;
                KEEP(made);
                drop(made);
            }
        }
        first = 0;
        say("done\n");
    }
    return 0;
}
