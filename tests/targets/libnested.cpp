// An allocator whose operators call its own malloc and free through their symbols, as an interposing library may do.
// new[] jumps to new, which calls malloc. delete[] jumps to delete, which jumps to free. Each block must be counted once.
#include <cstddef>
#include <new>

extern "C" {
void *__libc_malloc(size_t);
void __libc_free(void *);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *block) { __libc_free(block); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
}

void *operator new(size_t size) {
    void *block = malloc(size);
    if (!block) throw std::bad_alloc();
    return block;
}
void *operator new[](size_t size) { return ::operator new(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete[](void *block) noexcept { ::operator delete(block); }
void operator delete(void *block, size_t) noexcept { ::operator delete(block); }
void operator delete[](void *block, size_t) noexcept { ::operator delete[](block); }
