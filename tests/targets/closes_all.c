/* Does what daemons do first: closes every descriptor above 2, changes its directory and session, then works: 1000 blocks of 66
 * bytes, 500 freed. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>
#include "say.h"
int main(void) {
    KEEP(malloc(67));
    closefrom(3);
    if (chdir("/") != 0) return 1;
    setsid();
    for (int i = 0; i < 1000; i++) {
        void *made = malloc(66);
        KEEP(made);
        if (i % 2) free(made);
    }
    say("closes all done\n");
    return 0;
}
