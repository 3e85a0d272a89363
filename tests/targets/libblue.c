/* The other of two libraries of the same shape (see reuse.c): blue_inner allocates 302 bytes per call. */
#include <stdlib.h>
#include "say.h"
NOINLINE static void *blue_inner(void) { void *p = malloc(302); FRAME(); return p; }
void *work(void) { void *p = blue_inner(); FRAME(); return p; }
