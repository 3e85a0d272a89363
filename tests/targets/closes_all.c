/* Does what daemons do first: closes every descriptor above 2 and changes its directory and
 * session. It allocates 67 bytes before, which stay, and then 1000 blocks of 66 bytes, of which it frees 500.
 * Prints "closes all done". */
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
