/* The first of two libraries of the same shape (see reuse.c). Each call of `work` allocates 301 bytes in red_inner. */
#include <stdlib.h>
#include "say.h"
NOINLINE static void *red_inner(void) { void *p = malloc(301); FRAME(); return p; }
void *work(void) { void *p = red_inner(); FRAME(); return p; }
