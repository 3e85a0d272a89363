// An allocator with names of mimalloc. `mi_new` always fails: it calls `mi_failed`, which must not return. `mi_new_realloc` calls
// `mi_resizing` first, then malloc and free of libc through their symbols. Its own malloc is libc's.
#include <cstddef>
#include <cstdlib>
#include <cstring>

extern "C" {
void (*mi_failed)(void);
void (*mi_resizing)(void);

void *mi_malloc(size_t size) { return malloc(size); }
void mi_free(void *block) { free(block); }
void *mi_new(size_t) {
    mi_failed();
    abort();
}
void *mi_new_realloc(void *old, size_t size) {
    mi_resizing();
    void *block = malloc(size);
    if (!block) abort();
    memcpy(block, old, 100);
    free(old);
    return block;
}
}
