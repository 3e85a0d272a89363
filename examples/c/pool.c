/* A pool that reports its 10,000 items to heaptrack and keeps 100. Build: `heaptrack lib --install ht`, then cc -g -Iht pool.c -o pool */
#include "heaptrack_api.h"
#include <stdio.h>
#include <stdlib.h>

#define PLACES 1000

struct item {
    struct item *next;
    char name[56];
};

static struct item *pool;

static struct item *item_new(void) {
    struct item *item = pool;
    pool = item->next;
    heaptrack_report_alloc(item, sizeof *item);
    return item;
}

static void item_free(struct item *item) {
    heaptrack_report_free(item);
    item->next = pool;
    pool = item;
}

int main(void) {
    struct item *items = malloc(PLACES * sizeof *items);
    struct item *kept = NULL;
    for (int i = 0; i < PLACES; i++) {
        items[i].next = pool;
        pool = &items[i];
    }
    for (int i = 0; i < 10000; i++) {
        struct item *item = item_new();
        if (i % 100 == 0) {
            item->next = kept;
            kept = item;
        } else {
            item_free(item);
        }
    }
    puts("10000 items, 100 kept");
    return 0;
}
