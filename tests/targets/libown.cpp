// A library with its own allocator: malloc and all forms of operator new and delete, which do not call
// malloc and free. Blocks come from an arena and are never reused, so it is only for small tests.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/mman.h>

static const size_t arena_size = size_t(1) << 30;
static std::atomic<size_t> taken;

static char *arena() {
    static char *const made = static_cast<char *>(
        mmap(nullptr, arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    return made;
}

// Returns a block from the arena. The 8 bytes before the block hold its size.
__attribute__((noinline)) static void *take(size_t alignment, size_t size) {
    if (alignment < 16) alignment = 16;
    if (size > arena_size / 4) return errno = ENOMEM, nullptr;
    size_t room = (size + 2 * alignment + 15) & ~size_t(15), at = taken.fetch_add(room);
    if (at + room > arena_size) return errno = ENOMEM, nullptr;
    uintptr_t block = (reinterpret_cast<uintptr_t>(arena() + at) + 16 + alignment - 1) & ~(alignment - 1);
    reinterpret_cast<size_t *>(block)[-1] = size;
    return reinterpret_cast<void *>(block);
}
__attribute__((noinline)) static void give(void *block) {
    if (block) reinterpret_cast<size_t *>(block)[-1] |= size_t(1) << 63;
}
static void *take_or_throw(size_t alignment, size_t size) {
    void *block = take(alignment, size);
    if (!block) throw std::bad_alloc();
    return block;
}

extern "C" {
// If this is set, the next malloc sets it to null and calls the function.
void (*own_malloc_calls)(void);

void *malloc(size_t size) {
    if (void (*call)(void) = own_malloc_calls) {
        own_malloc_calls = nullptr;
        call();
    }
    return take(16, size);
}
void free(void *block) { give(block); }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void *realloc(void *old, size_t size) {
    void *block = take(16, size);
    if (!old || !block) return block;
    size_t before = static_cast<size_t *>(old)[-1];
    memcpy(block, old, before < size ? before : size);
    give(old);
    return block;
}
}

void *operator new(size_t size, const std::nothrow_t &) noexcept { return take(16, size); }
#ifdef ALIASES
// All four forms of `new` without alignment are one function, as in Chromium, and none of them throws.
void *operator new(size_t size) __attribute__((alias("_ZnwmRKSt9nothrow_t")));
void *operator new[](size_t size) __attribute__((alias("_ZnwmRKSt9nothrow_t")));
void *operator new[](size_t size, const std::nothrow_t &) noexcept __attribute__((alias("_ZnwmRKSt9nothrow_t")));
#else
void *operator new(size_t size) { return take_or_throw(16, size); }
void *operator new[](size_t size) { return take_or_throw(16, size); }
void *operator new[](size_t size, const std::nothrow_t &) noexcept { return take(16, size); }
#endif
void *operator new(size_t size, std::align_val_t to) { return take_or_throw(size_t(to), size); }
void *operator new[](size_t size, std::align_val_t to) { return take_or_throw(size_t(to), size); }
void *operator new(size_t size, std::align_val_t to, const std::nothrow_t &) noexcept { return take(size_t(to), size); }
void *operator new[](size_t size, std::align_val_t to, const std::nothrow_t &) noexcept { return take(size_t(to), size); }
void operator delete(void *block) noexcept { give(block); }
void operator delete[](void *block) noexcept { give(block); }
void operator delete(void *block, size_t) noexcept { give(block); }
void operator delete[](void *block, size_t) noexcept { give(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { give(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { give(block); }
void operator delete(void *block, std::align_val_t) noexcept { give(block); }
void operator delete[](void *block, std::align_val_t) noexcept { give(block); }
void operator delete(void *block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete[](void *block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { give(block); }
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { give(block); }
