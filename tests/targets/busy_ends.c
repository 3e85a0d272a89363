/* Forks ten children one after the other, waits for each and ends at once. Each child allocates a block of 99 bytes and ends
 * while three threads of it allocate. Exit code: 5. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "say.h"

static void *work(void *unused) {
    for (int i = 0; i < 20000; i++) ALLOCATE_AND_FREE(50);
    return unused;
}

int main(void) {
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            void *block = malloc(99);
            KEEP(block);
            pthread_t threads[3];
            for (int t = 0; t < 3; t++) pthread_create(&threads[t], NULL, work, NULL);
            usleep(300);
            _exit(2);
        }
        waitpid(child, NULL, 0);
    }
    _exit(5);
}
