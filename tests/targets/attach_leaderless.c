/* Its first thread ends at once, and a second thread continues. That thread prints "ready". For each line on stdin it
 * allocates and frees 100 blocks of 7001 bytes and prints "done". Ends with code 0 when stdin ends. */
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

static void *work(void *unused) {
    char byte;
    say("ready\n");
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        for (int i = 0; i < 100; i++) {
            void *block = malloc(7001);
            KEEP(block);
            free(block);
        }
        say("done\n");
    }
    exit(0);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
