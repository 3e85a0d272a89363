/* C23's variants of free, as a new libc has them. They call free through its symbol. */
#include <stdlib.h>

void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);

void free_sized(void *block, size_t size) {
    (void)size;
    free(block);
}
void free_aligned_sized(void *block, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    free(block);
}
