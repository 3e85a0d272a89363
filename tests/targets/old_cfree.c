/* Frees 1000 blocks of 8001 bytes with cfree, as a program does that was linked before glibc 2.26. */
#include <stdlib.h>
#include "say.h"

extern void old_cfree(void *);
__asm__(".symver old_cfree, cfree@GLIBC_2.2.5");

int main(void) {
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(8001);
        KEEP(block);
        old_cfree(block);
    }
    say("freed\n");
    return 0;
}
