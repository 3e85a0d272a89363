/* GNU Pth: 50 user-level threads, made by makecontext, take turns: 50 * 20 * 10 blocks. */
#include <pth.h>
#include "../blocks/zoo.h"

/* Only one of the threads runs at a time. */
static long sum;

static void *body(void *nothing) {
    (void)nothing;
    for (int turn = 0; turn < 20; turn++) {
        sum += zoo_blocks(10);
        pth_yield(NULL);
    }
    return NULL;
}

int main(void) {
    pth_t threads[50];
    pth_init();
    for (int i = 0; i < 50; i++)
        threads[i] = pth_spawn(PTH_ATTR_DEFAULT, body, NULL);
    zoo_ready();
    for (int i = 0; i < 50; i++)
        pth_join(threads[i], NULL);
    printf("%ld\n", sum);
    return 0;
}
