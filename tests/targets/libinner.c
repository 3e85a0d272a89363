/* A library that the loader finds only through libplugin's RUNPATH. `inner` allocates 777 bytes. */
#include <stdlib.h>
#include "say.h"
void *inner(void) { void *p = malloc(777); FRAME(); return p; }
