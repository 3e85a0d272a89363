// An allocator with operators of its own, whose realloc calls its own malloc and free through their symbols. After the first half of a
// realloc it calls a function of the program, as a signal would.
#include <cstddef>
#include <cstring>
#include <new>

extern "C" {
void *__libc_malloc(size_t);
void __libc_free(void *);
void *__libc_calloc(size_t, size_t);
void *__libc_memalign(size_t, size_t);

// If this is set, realloc calls it.
void (*interrupted)(void);

void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *block) { __libc_free(block); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
// Keeps the first 100 bytes, which every block of the test has.
void *realloc(void *old, size_t size) {
    if (interrupted) interrupted();
    void *block = malloc(size);
    if (!old || !block) return block;
    memcpy(block, old, 100);
    free(old);
    return block;
}
}

void *operator new(size_t size) {
    void *block = __libc_malloc(size);
    if (!block) throw std::bad_alloc();
    return block;
}
void *operator new(size_t size, const std::nothrow_t &) noexcept { return __libc_malloc(size); }
void operator delete(void *block) noexcept { __libc_free(block); }
void operator delete(void *block, size_t) noexcept { __libc_free(block); }
