/* The State Threads library: 50 user-level threads, made by the library's own setjmp, take turns. 50 * 20 * 10 blocks. */
#include <st.h>
#include "../blocks/zoo.h"

/* Only one of the threads runs at a time. */
static long sum;

static void *body(void *nothing) {
    (void)nothing;
    for (int turn = 0; turn < 20; turn++) {
        sum += zoo_blocks(10);
        st_usleep(0);
    }
    return NULL;
}

int main(void) {
    st_thread_t threads[50];
    if (st_init())
        return 1;
    for (int i = 0; i < 50; i++)
        threads[i] = st_thread_create(body, NULL, 1, 64 << 10);
    zoo_ready();
    for (int i = 0; i < 50; i++)
        st_thread_join(threads[i], NULL);
    printf("%ld\n", sum);
    return 0;
}
