/* The allocators of own_names.h in a library. Its constructor does 10 rounds, `work` does 90. The target `opens` calls `work`. */
#include "own_names.h"

__attribute__((constructor)) static void begin(void) { own_names_work(10); }

void work(void) { own_names_work(90); }
