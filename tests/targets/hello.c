/* The smallest program with one block: malloc(10), left. Prints "hello ARGC WORD" with its first argument; ends with 11 if there is
   one, otherwise with 0. Also built static. */
#include <stdlib.h>
#include "say.h"
int main(int argc, char **argv) {
    KEEP(malloc(10));
    say("hello %d %s\n", argc, argc > 1 ? argv[1] : "");
    return argc > 1 ? 11 : 0;
}
