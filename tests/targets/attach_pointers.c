/* Keeps the addresses of malloc and free as its table of imports has them. For a line on stdin: "take" takes the addresses, any
 * other line makes and frees 100 blocks of 3001 bytes by them. Prints "done". */
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
