/* mimalloc 3 has a main heap, which `mi_heap_destroy` refuses to destroy. Five blocks of 7101 bytes are in the main heap when the program
 * tries that, and two of them are freed after it. Four blocks of 7102 bytes are in a heap that is destroyed. */
#include <mimalloc.h>
#include <stdio.h>

int main(void) {
    mi_heap_t *main_heap = mi_heap_main(), *other = mi_heap_new();
    void *kept[5];
    for (int i = 0; i < 5; i++)
        kept[i] = mi_heap_malloc(main_heap, 7101);
    for (int i = 0; i < 4; i++)
        *(volatile char *)mi_heap_malloc(other, 7102) = 1;
    mi_heap_destroy(main_heap);
    mi_heap_destroy(other);
    mi_free(kept[0]);
    mi_free(kept[1]);
    puts("done");
    return 0;
}
