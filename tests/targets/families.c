/* Calls the functions that an allocator exports besides malloc, 1000 times each. The allocator is chosen at compile time. Requested sizes:
   JEMALLOC: 5001 mallocx, then a failed xallocx, half freed by dallocx and half by sdallocx; 5002 mallocx, resized by rallocx to 5003,
   then by xallocx in place to 5004.
   TCMALLOC: 5001 tc_malloc, 5002 tc_calloc, resized by tc_realloc to 9003, 5004 tc_new, 5005 tc_newarray_nothrow, 5120 tc_memalign.
   MIMALLOC: 5001 mi_malloc, 5002 mi_zalloc, resized by mi_realloc to 9003, 5004 mi_new, 5120 mi_malloc_aligned, 5006 mi_calloc,
   17 mi_strdup, 5007 mi_malloc expanded in place by mi_expand to 5008. All are freed. Prints the number of rounds. */
#include <stdlib.h>
#include <string.h>
#include "say.h"

#ifdef JEMALLOC
#include <jemalloc/jemalloc.h>
static void round_of_calls(int i) {
    void *block = mallocx(5001, 0);
    KEEP(block);
    if (xallocx(block, (size_t)1 << 40, 0, 0) >= (size_t)1 << 40) _exit(97);
    if (i % 2)
        dallocx(block, 0);
    else
        sdallocx(block, 5001, 0);
    block = rallocx(mallocx(5002, MALLOCX_ALIGN(64)), 5003, 0);
    if (xallocx(block, 5004, 0, 0) < 5004) _exit(96);
    dallocx(block, 0);
}
#elif defined TCMALLOC
#include <gperftools/tcmalloc.h>
/* The header declares these for C++ only. */
void *tc_new(size_t), *tc_newarray_nothrow(size_t, const void *);
void tc_delete(void *), tc_deletearray_nothrow(void *, const void *);
static void round_of_calls(int i) {
    void *block = tc_malloc(5001);
    KEEP(block);
    if (i % 2)
        tc_free(block);
    else
        tc_free_sized(block, 5001);
    tc_free(tc_realloc(tc_calloc(2, 2501), 9003));
    tc_delete(tc_new(5004));
    tc_deletearray_nothrow(tc_newarray_nothrow(5005, 0), 0);
    tc_free(tc_memalign(64, 5120));
}
#else
#include <mimalloc.h>
static void round_of_calls(int i) {
    void *block = mi_malloc(5001);
    KEEP(block);
    if (i % 2)
        mi_free(block);
    else
        mi_free_size(block, 5001);
    mi_free(mi_realloc(mi_zalloc(5002), 9003));
    mi_free(mi_new(5004));
    mi_free_aligned(mi_malloc_aligned(5120, 64), 64);
    mi_free(mi_calloc(2, 2503));
    mi_free(mi_strdup("sixteen letters!"));
    block = mi_malloc(5007);
    if (mi_expand(block, 5008) != block) _exit(96);
    mi_free(block);
}
#endif

int main(void) {
    for (int i = 0; i < 1000; i++) round_of_calls(i);
    say("1000\n");
    return 0;
}
