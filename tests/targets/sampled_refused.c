/* A thread that starts in a sandbox shrinks a block of the main thread in place, from 100000 to 50000 bytes. Recording makes no system call
 * in a sandbox, so that thread cannot be recorded. Then the main thread frees the block. Prints whether the block has stayed in its place. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "say.h"

static struct sock_filter rules[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
static struct sock_fprog program = {1, rules};

static void *shrink(void *block) {
    return realloc(block, 50000);
}

int main(void) {
    void *block = malloc(100000);
    KEEP(block);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 3;
    pthread_t thread;
    void *shrunk = NULL;
    if (pthread_create(&thread, NULL, shrink, block) || pthread_join(thread, &shrunk)) return 4;
    int stays = shrunk == block;
    free(shrunk);
    say("%s\n", stays ? "in place" : "moved");
    return 0;
}
