/* The second of two libraries of the same shape (see reuse.c). Each call of `work` allocates 302 bytes in blue_inner. */
#include <stdlib.h>
#include "say.h"
NOINLINE static void *blue_inner(void) { void *p = malloc(302); FRAME(); return p; }
void *work(void) { void *p = blue_inner(); FRAME(); return p; }
