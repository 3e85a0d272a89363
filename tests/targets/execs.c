/* execs PROGRAM [WORDS...]: leaves 100 blocks of 7002 bytes, tries to execute a program that does not exist, then becomes PROGRAM.
   If that fails, or without arguments, it prints "still here" and returns 5. */
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
