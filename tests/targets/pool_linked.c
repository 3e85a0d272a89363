/*
 * Linked to the capture library, as heaptrack_preload or heaptrack_inject. Calls every function of its API by name. It reports
 * 10 blocks of 40 bytes, frees 4 of them, and resizes one by realloc, which moves it, and one by realloc2 in place, to 50 bytes each.
 * By malloc: 7 blocks of 123 bytes, 3 freed. With an argument it then stops the recording, reports one more block, frees one more block of
 * malloc, and prints the counts of the callbacks on stderr. Prints "linked done".
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void heaptrack_malloc(void *ptr, size_t size);
void heaptrack_free(void *ptr);
void heaptrack_realloc(void *ptr_in, size_t size, void *ptr_out);
void heaptrack_realloc2(uintptr_t ptr_in, size_t size, uintptr_t ptr_out);
void heaptrack_init(const char *name, void (*before)(void), void (*after)(void *), void (*at_stop)(void));
void heaptrack_stop(void);
void heaptrack_inject(const char *name);
void heaptrack_invalidate_module_cache(void);
void heaptrack_warning(void (*callback)(FILE *));

static char memory[20 * 64];
static int begun, ended, warned;

static void before(void) { begun++; }
static void after(void *writer) { (void)writer; }
static void at_stop(void) { ended++; }
static void warn(FILE *stream) { warned += stream == stderr; }

int main(int argc, char **argv) {
    void *blocks[7];
    int i;
    (void)argv;
    heaptrack_init("ignored", before, after, at_stop);
    heaptrack_inject("ignored");
    for (i = 0; i < 10; i++) {
        heaptrack_malloc(memory + i * 64, 40);
    }
    for (i = 0; i < 4; i++) {
        heaptrack_free(memory + i * 64);
    }
    heaptrack_invalidate_module_cache();
    heaptrack_realloc(memory + 4 * 64, 50, memory + 10 * 64);
    heaptrack_realloc2((uintptr_t)memory + 5 * 64, 50, (uintptr_t)memory + 5 * 64);
    for (i = 0; i < 7; i++) {
        blocks[i] = malloc(123);
        *(volatile char *)blocks[i] = 0;
    }
    for (i = 0; i < 3; i++) {
        free(blocks[i]);
    }
    heaptrack_warning(warn);
    if (argc > 1) {
        heaptrack_stop();
        heaptrack_stop();
        heaptrack_malloc(memory + 15 * 64, 40);
        free(blocks[4]);
        fprintf(stderr, "begun %d, ended %d, warned %d\n", begun, ended, warned);
    }
    puts("linked done");
    return 0;
}
