/* Ends in the way that the argument names, after allocating 10 blocks of 123 bytes and freeing 4: left 6, 738 bytes. Prints
 * "leaving by WAY". The number is the exit code; in parentheses, 128 plus the signal that kills it.
 *   return 5 | exit 6 | _exit 7 | quick_exit 8 | abort (134) | segv (139) | term (143) | thread_exit 0 | trap (133) */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

static void *last_thread(void *unused) {
    (void)unused;
    usleep(20000);
    exit(0);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "return";
    void *made[10];
    for (int i = 0; i < 10; i++) made[i] = malloc(123);
    KEEP(made);
    for (int i = 0; i < 4; i++) free(made[i]);
    say("leaving by %s\n", way);
    if (!strcmp(way, "exit")) exit(6);
    if (!strcmp(way, "_exit")) _exit(7);
    if (!strcmp(way, "quick_exit")) quick_exit(8);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(way, "term")) raise(SIGTERM);
    if (!strcmp(way, "trap")) raise(SIGTRAP);
    if (!strcmp(way, "thread_exit")) {
        pthread_t thread;
        pthread_create(&thread, NULL, last_thread, NULL);
        pthread_exit(NULL);
    }
    return 5;
}
