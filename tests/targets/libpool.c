/* A library that reports blocks as KDE's header does, through weak names only. use_pool reports 50 blocks of 33 bytes, 20 of them freed. */
#include <stddef.h>

__attribute__((weak)) void heaptrack_malloc(void *ptr, size_t size);
__attribute__((weak)) void heaptrack_free(void *ptr);

static char memory[50 * 64];

void use_pool(void) {
    for (int i = 0; i < 50; i++) {
        if (heaptrack_malloc) {
            heaptrack_malloc(memory + i * 64, 33);
        }
        if (i < 20 && heaptrack_free) {
            heaptrack_free(memory + i * 64);
        }
    }
}
