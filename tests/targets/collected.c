/* Uses Boehm's collector (libgc), which stops all threads by signals wherever they are, even inside our hooks. Four threads
 * build lists with GC_malloc, and in between each calls malloc(55) 5000 times and frees each block. Own blocks: 20000 of 55.
 * Prints "sum 15600000, collected yes". */
#define GC_THREADS
#include <gc.h>
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

struct cell {
    struct cell *next;
    long value;
};

static void *work(void *unused) {
    (void)unused;
    long sum = 0;
    for (int round = 0; round < 5000; round++) {
        void *made = malloc(55);
        KEEP(made);
        struct cell *list = NULL;
        for (long i = 0; i < 40; i++) {
            struct cell *cell = GC_malloc(sizeof *cell);
            cell->next = list, cell->value = i;
            list = cell;
        }
        for (struct cell *at = list; at; at = at->next) sum += at->value;
        free(made);
    }
    return (void *)sum;
}

int main(void) {
    GC_INIT();
    GC_allow_register_threads();
    pthread_t thread[4];
    long sum = 0;
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(thread[i], &result);
        sum += (long)result;
    }
    GC_gcollect();
    say("sum %ld, collected %s\n", sum, GC_get_gc_no() > 0 ? "yes" : "no");
    return 0;
}
