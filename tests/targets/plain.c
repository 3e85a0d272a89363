/* malloc and free from five functions, no realloc, one strict maximum, known leaks. Prints "plain done".
 *
 *   site       calls  bytes each  freed  left
 *   records      100         48    100      0
 *   names         50         31     40     10 (310 bytes)
 *   table          1       4000      0      1
 *   scratch   2x1000         16   2000      0   (main calls it twice; each block freed at once: temporary)
 *   summit         3      10000      3      0   (the maximum: 100*48 + 50*31 + 4000 + 30000 = 40350 bytes in 154 blocks)
 *
 * From the program's own code: 2154 allocations of 72350 bytes, 2143 freed, 11 left with 4310 bytes. */
#include <stdlib.h>
#include "say.h"

static char *record_list[100], *name_list[50];

NOINLINE static void records(void) {
    for (int i = 0; i < 100; i++) record_list[i] = malloc(48);
}
NOINLINE static void names(void) {
    for (int i = 0; i < 50; i++) name_list[i] = malloc(31);
}
NOINLINE static void *table(void) {
    void *made = malloc(4000);
    KEEP(made);
    return made;
}
NOINLINE static void scratch(void) {
    for (int i = 0; i < 1000; i++) {
        void *made = malloc(16);
        KEEP(made);
        free(made);
    }
}
NOINLINE static void summit(void) {
    void *made[3];
    for (int i = 0; i < 3; i++) made[i] = malloc(10000);
    KEEP(made);
    for (int i = 0; i < 3; i++) free(made[i]);
}

int main(void) {
    records();
    names();
    KEEP(table());
    scratch();
    summit();
    scratch();
    for (int i = 0; i < 100; i++) free(record_list[i]);
    for (int i = 0; i < 40; i++) free(name_list[i]);
    say("plain done\n");
    return 0;
}
