/* Found only through libplugin's RUNPATH. */
#include <stdlib.h>
#include "say.h"
void *inner(void) { void *p = malloc(777); FRAME(); return p; }
