/* The State Threads library: 50 user-level threads, made by the library's own setjmp, take turns: 50 * 20 * 10 blocks.
 * */
#include <st.h>
#include "../blocks/zoo.h"

static void *body(void *nothing) {
    (void)nothing;
    long sum = 0;
    for (int turn = 0; turn < 20; turn++) {
        sum += zoo_blocks(10);
        st_usleep(0);
    }
    return (void *)sum;
}

int main(void) {
    st_thread_t threads[50];
    long sum = 0;
    if (st_init())
        return 1;
    for (int i = 0; i < 50; i++)
        threads[i] = st_thread_create(body, NULL, 1, 64 << 10);
    zoo_ready();
    for (int i = 0; i < 50; i++) {
        void *one;
        st_thread_join(threads[i], &one);
        sum += (long)one;
    }
    printf("%ld\n", sum);
    return 0;
}
