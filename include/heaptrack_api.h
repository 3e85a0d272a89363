/*
 * heaptrack_api.h: tell heaptrack about blocks that do not come from malloc.
 *
 * For allocators of your own: a pool, an arena, a garbage collector. Report each block that you allocate and each that
 * you free. heaptrack then shows these blocks with their stacks, in a list of their own, next to malloc's.
 *
 *     void *pool_take(size_t size) {
 *         void *block = ...;
 *         heaptrack_report_alloc(block, size);
 *         return block;
 *     }
 *
 * Nothing is linked and nothing is needed at run time. While the program is not recorded, a report is a load, a test
 * and a branch that is not taken. It works in programs and in libraries, static or shared, in C89 and later and in C++98
 * and later, for launched and for attached programs. You may report before or after the real work. A report about a
 * null pointer is ignored.
 *
 *     heaptrack_report_alloc(ptr, size)              a block was allocated
 *     heaptrack_report_free(ptr)                     a block was freed
 *     heaptrack_report_realloc(old, size, new)       a block was moved or resized; old may be null
 *     heaptrack_report_moving(ptr)                   a block is about to be moved or resized; report its new address
 *                                                    with heaptrack_report_alloc. For allocators without a lock, where
 *                                                    another thread may get the old address at once
 *     heaptrack_pause_recording()                    no allocation is recorded from here on, not even malloc's;
 *                                                    frees still are
 *     heaptrack_resume_recording()                   allocations are recorded again
 *     heaptrack_stop_recording()                     recording ends for good
 *
 * Define before the first #include, if you like:
 *
 *     HEAPTRACK_API_DLSYM                 look up the functions of KDE's heaptrack with dlsym (needs libdl before glibc
 *                                         2.34). Without it, weak references are used, which the linker may resolve to
 *                                         null in an executable
 *     HEAPTRACK_DEFINE_VALGRIND_MACROS    code that reports its pools to valgrind reports them to heaptrack as well:
 *                                         defines VALGRIND_MEMPOOL_ALLOC and related macros, unless they are defined
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HEAPTRACK_API_H
#define HEAPTRACK_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*heaptrack_alloc_function)(void *ptr, size_t size);
typedef void (*heaptrack_free_function)(void *ptr);
typedef void (*heaptrack_realloc_function)(void *ptr_in, size_t size, void *ptr_out);
typedef void (*heaptrack_plain_function)(void);

/*
 * Each program or library that includes this file has one table. heaptrack fills it when it starts to record, which may
 * be at any moment and on any thread. An ELF note locates it:
 *
 *     | 10 | 8 | 1 | "heaptrack" 0 0 0 | pointers in the table | table - here |         32 bits each but for the name
 */
typedef struct heaptrack_api_table_t {
    heaptrack_alloc_function volatile alloc;
    heaptrack_free_function volatile free;
    heaptrack_realloc_function volatile realloc;
    heaptrack_free_function volatile moving;
    heaptrack_plain_function volatile pause;
    heaptrack_plain_function volatile resume;
    heaptrack_plain_function volatile stop;
} heaptrack_api_table_t;

#if defined(__GNUC__) && defined(__ELF__) && defined(__x86_64__) && !defined(__ILP32__)
#define HEAPTRACK_HAS_TABLE_ 1
extern heaptrack_api_table_t heaptrack_api_table __attribute__((visibility("hidden")));
heaptrack_api_table_t heaptrack_api_table __attribute__((weak, used, visibility("hidden")));
__asm__(".pushsection .note.heaptrack,\"a\",@note\n"
        ".balign 4\n"
        ".long 10, 8, 1\n"
        ".asciz \"heaptrack\"\n"
        ".balign 4\n"
        ".long 7\n"
        ".long heaptrack_api_table - .\n"
        ".popsection\n");
#else
#define HEAPTRACK_HAS_TABLE_ 0
#endif

/* The functions that KDE's heaptrack exports, and our own library too (`heaptrack lib --install`). */
#if defined(HEAPTRACK_API_DLSYM)

#ifdef __cplusplus
}
#endif
#include <dlfcn.h>
#ifdef __cplusplus
extern "C" {
#endif

struct heaptrack_api_t {
    heaptrack_alloc_function malloc;
    heaptrack_free_function free;
    heaptrack_realloc_function realloc;
    int looked;
};

extern struct heaptrack_api_t heaptrack_api __attribute__((visibility("hidden")));
struct heaptrack_api_t heaptrack_api __attribute__((weak, visibility("hidden")));

/* May be called more than once. The first argument is RTLD_DEFAULT, which is not defined without _GNU_SOURCE. */
static __inline__ __attribute__((unused)) void heaptrack_init_api(void) {
    void *found;
    if (heaptrack_api.looked) {
        return;
    }
    found = dlsym((void *)0, "heaptrack_malloc");
    __builtin_memcpy(&heaptrack_api.malloc, &found, sizeof found);
    found = dlsym((void *)0, "heaptrack_free");
    __builtin_memcpy(&heaptrack_api.free, &found, sizeof found);
    found = dlsym((void *)0, "heaptrack_realloc");
    __builtin_memcpy(&heaptrack_api.realloc, &found, sizeof found);
    heaptrack_api.looked = 1;
}

#define HEAPTRACK_OTHER_ALLOC_ (heaptrack_init_api(), heaptrack_api.malloc)
#define HEAPTRACK_OTHER_FREE_ (heaptrack_init_api(), heaptrack_api.free)
#define HEAPTRACK_OTHER_REALLOC_ (heaptrack_init_api(), heaptrack_api.realloc)

#elif defined(__GNUC__)

__attribute__((weak)) void heaptrack_malloc(void *ptr, size_t size);
__attribute__((weak)) void heaptrack_free(void *ptr);
__attribute__((weak)) void heaptrack_realloc(void *ptr_in, size_t size, void *ptr_out);
#define HEAPTRACK_OTHER_ALLOC_ heaptrack_malloc
#define HEAPTRACK_OTHER_FREE_ heaptrack_free
#define HEAPTRACK_OTHER_REALLOC_ heaptrack_realloc

#else

#define HEAPTRACK_OTHER_ALLOC_ ((heaptrack_alloc_function)0)
#define HEAPTRACK_OTHER_FREE_ ((heaptrack_free_function)0)
#define HEAPTRACK_OTHER_REALLOC_ ((heaptrack_realloc_function)0)

#endif

/* Each pointer is read only once, because heaptrack may clear it between two reads. */
#if HEAPTRACK_HAS_TABLE_
#define HEAPTRACK_CALL_(type, entry, other, arguments)              \
    do {                                                            \
        type heaptrack_call_ = heaptrack_api_table.entry;           \
        if (!heaptrack_call_) {                                     \
            heaptrack_call_ = other;                                \
        }                                                           \
        if (heaptrack_call_) {                                      \
            heaptrack_call_ arguments;                              \
        }                                                           \
    } while (0)
#else
#define HEAPTRACK_CALL_(type, entry, other, arguments)              \
    do {                                                            \
        type heaptrack_call_ = other;                               \
        if (heaptrack_call_) {                                      \
            heaptrack_call_ arguments;                              \
        }                                                           \
    } while (0)
#endif
#define HEAPTRACK_NONE_ ((heaptrack_plain_function)0)

#define heaptrack_report_alloc(ptr, size) \
    HEAPTRACK_CALL_(heaptrack_alloc_function, alloc, HEAPTRACK_OTHER_ALLOC_, ((ptr), (size)))
#define heaptrack_report_free(ptr) HEAPTRACK_CALL_(heaptrack_free_function, free, HEAPTRACK_OTHER_FREE_, ((ptr)))
#define heaptrack_report_realloc(ptr_in, size, ptr_out) \
    HEAPTRACK_CALL_(heaptrack_realloc_function, realloc, HEAPTRACK_OTHER_REALLOC_, ((ptr_in), (size), (ptr_out)))
#define heaptrack_report_moving(ptr) HEAPTRACK_CALL_(heaptrack_free_function, moving, HEAPTRACK_OTHER_FREE_, ((ptr)))
#define heaptrack_pause_recording() HEAPTRACK_CALL_(heaptrack_plain_function, pause, HEAPTRACK_NONE_, ())
#define heaptrack_resume_recording() HEAPTRACK_CALL_(heaptrack_plain_function, resume, HEAPTRACK_NONE_, ())
#define heaptrack_stop_recording() HEAPTRACK_CALL_(heaptrack_plain_function, stop, HEAPTRACK_NONE_, ())

#ifdef HEAPTRACK_DEFINE_VALGRIND_MACROS
#ifndef VALGRIND_MEMPOOL_ALLOC
#define VALGRIND_MEMPOOL_ALLOC(pool, ptr, size) heaptrack_report_alloc(ptr, size)
#endif
#ifndef VALGRIND_MEMPOOL_FREE
#define VALGRIND_MEMPOOL_FREE(pool, ptr) heaptrack_report_free(ptr)
#endif
#ifndef VALGRIND_CREATE_MEMPOOL
#define VALGRIND_CREATE_MEMPOOL(pool, redzone, zeroed) ((void)0)
#endif
#ifndef VALGRIND_DESTROY_MEMPOOL
#define VALGRIND_DESTROY_MEMPOOL(pool) ((void)0)
#endif
#ifndef VALGRIND_MAKE_MEM_NOACCESS
#define VALGRIND_MAKE_MEM_NOACCESS(ptr, size) ((void)0)
#endif
#ifndef VALGRIND_ENABLE_ERROR_REPORTING
#define VALGRIND_ENABLE_ERROR_REPORTING ((void)0)
#endif
#ifndef VALGRIND_DISABLE_ERROR_REPORTING
#define VALGRIND_DISABLE_ERROR_REPORTING ((void)0)
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
