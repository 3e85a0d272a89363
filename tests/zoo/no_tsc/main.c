/* Denies itself the time stamp counter, then works with two threads: 2 * 5000 blocks. */
#include <pthread.h>
#include <sys/prctl.h>
#include "../blocks/zoo.h"

static void *body(void *nothing) {
    (void)nothing;
    return (void *)zoo_blocks(5000);
}

int main(void) {
    zoo_ready();
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    pthread_t thread;
    void *more;
    pthread_create(&thread, NULL, body, NULL);
    long sum = zoo_blocks(5000);
    pthread_join(thread, &more);
    printf("%ld\n", sum + (long)more);
    return 0;
}
