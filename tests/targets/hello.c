/* The smallest program with one block: malloc(10), left. Prints "hello", its number of arguments and the first one; ends with 11 if
   there is one. Also built static, for the test of what cannot be recorded. */
#include <stdlib.h>
#include "say.h"
int main(int argc, char **argv) {
    KEEP(malloc(10));
    say("hello %d %s\n", argc, argc > 1 ? argv[1] : "");
    return argc > 1 ? 11 : 0;
}
