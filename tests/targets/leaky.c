/* Five ways to hold memory, one function each, in 200 rounds of 2 ms, or of the number of ms in the first argument. The last column
 * is the expected verdict. Prints "leaky done".
 *
 *   start_up   7 blocks of 501 before the first round, never freed                       once
 *   forget     1 block of 101 a round, never freed: 200 left with 20200 bytes             grows
 *   remember   1 block of 201 a round into a ring of 20, each freed 20 rounds later: 20 left   bounded
 *   in_flight  1 block of 301 a round, freed in the next round: 1 left                     tail
 *   tidy       1 block of 401 a round, all freed after the last round: none left           exit
 */
#include <stdlib.h>
#include <time.h>
#include "say.h"

#define ROUNDS 200
#define RING 20
static void *ring[RING], *held[ROUNDS], *flying;

NOINLINE static void start_up(void) { for (int i = 0; i < 7; i++) KEEP(malloc(501)); }
NOINLINE static void forget(void) { KEEP(malloc(101)); FRAME(); }
NOINLINE static void remember(int round) {
    free(ring[round % RING]);
    ring[round % RING] = malloc(201);
    FRAME();
}
NOINLINE static void in_flight(void) {
    free(flying);
    flying = malloc(301);
    FRAME();
}
NOINLINE static void tidy(int round) { held[round] = malloc(401); FRAME(); }

int main(int argc, char **argv) {
    struct timespec pause = {0, (argc > 1 ? atol(argv[1]) : 2) * 1000000};
    start_up();
    for (int round = 0; round < ROUNDS; round++) {
        forget();
        remember(round);
        in_flight();
        tidy(round);
        nanosleep(&pause, NULL);
    }
    for (int round = 0; round < ROUNDS; round++) free(held[round]);
    say("leaky done\n");
    return 0;
}
