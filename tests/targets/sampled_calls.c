// Calls every allocating function of libc with sizes of at least 1, and reallocs that move, fail and free.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int holds, const char *what) {
    if (!holds) {
        puts(what);
        exit(1);
    }
}

static int cannot_grow(void *volatile block) {
    errno = 0;
    return realloc(block, SIZE_MAX / 4) == NULL && errno == ENOMEM;
}

static void *calls(void *unused) {
    (void)unused;
    for (size_t i = 0; i < 2000; i++) {
        void *a = malloc(1 + i % 50), *b = NULL;
        a = realloc(a, 100 + i);
        require(cannot_grow(a), "a realloc that must fail");
        require(posix_memalign(&b, 256, 1 + i % 9000) == 0 && (uintptr_t)b % 256 == 0, "posix_memalign");
        void *c = memalign(128, 1 + i % 700), *d = aligned_alloc(64, 640);
        char *e = calloc(3, 1 + i % 1000);
        for (size_t at = 0; at < 3 * (1 + i % 1000); at++)
            require(e[at] == 0, "calloc");
        free(a);
        free(b);
        free(c);
        free(d);
        free(e);
        // With glibc this frees the block.
        free(realloc(malloc(30), 0));
    }
    return NULL;
}

int main(void) {
    errno = 0;
    volatile size_t huge = SIZE_MAX / 2;
    require(malloc(huge) == NULL && errno == ENOMEM, "a malloc that must fail");
    errno = 0;
    require(calloc(huge, 4) == NULL && errno == ENOMEM, "a calloc that must fail");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    void *kept[100];
    for (int i = 0; i < 100; i++)
        kept[i] = malloc(1000);
    // A child that frees and allocates, and is not recorded.
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            free(kept[i]);
        calls(NULL);
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child");
    // The rest leaks.
    for (int i = 0; i < 60; i++)
        free(kept[i]);
    puts("done");
    return 0;
}
