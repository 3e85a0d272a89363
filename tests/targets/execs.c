/* Leaves 100 blocks of 7002 bytes, then becomes another program: execs PROGRAM [WORDS...]. If that is not possible it says so and returns 5.
   Before, it tries a program that is not there. */
#include <stdlib.h>
#include <unistd.h>
#include "say.h"

int main(int argc, char **argv) {
    for (int i = 0; i < 100; i++) {
        void *block = malloc(7002);
        KEEP(block);
    }
    execv("/no/such/program", argv);
    if (argc > 1) execv(argv[1], argv + 1);
    say("still here\n");
    return 5;
}
