/* Frees 1000 blocks of 9001 bytes with free_sized and 1000 of 9024 bytes with free_aligned_sized, both of libsized.so. */
#include <stdlib.h>
#include "say.h"

void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);

int main(void) {
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(9001);
        KEEP(block);
        free_sized(block, 9001);
        block = aligned_alloc(64, 9024);
        KEEP(block);
        free_aligned_sized(block, 64, 9024);
    }
    say("freed\n");
    return 0;
}
