/* Its constructor sets a variable, so libc's setenv makes the first allocation of the program. */
#include <stdlib.h>

__attribute__((constructor)) static void set(void) { setenv("SET_EARLY", "yes", 1); }

int early(void) { return 1; }
