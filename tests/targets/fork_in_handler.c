// Allocates 2,000,000 blocks of 1000 bytes, each freed at once, while a timer's handler forks 50 to 200 times. A child returns from
// the handler into the interrupted code, allocates and frees 200 blocks of 24 bytes, and ends. Prints "N children did not end well".
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 2000000, CHILDS_BLOCKS = 200, FORKS = 200, EVERY_US = 300 };

static volatile sig_atomic_t forks, in_child;

static void fork_now(int signal) {
    (void)signal;
    if (in_child || forks == FORKS) return;
    pid_t child = fork();
    if (child == 0) in_child = 1;
    if (child > 0) forks++;
}

static void take_and_free(size_t size) {
    void *volatile block = malloc(size);
    free(block);
}

int main(void) {
    struct sigaction action = {.sa_handler = fork_now, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, EVERY_US}, {0, EVERY_US}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < BLOCKS || (!in_child && forks < FORKS / 4); i++) {
        if (in_child) {
            for (int j = 0; j < CHILDS_BLOCKS; j++) take_and_free(24);
            _exit(0);
        }
        if (i < BLOCKS) take_and_free(1000);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    // A child of a fork after the last block leaves the loop, too.
    if (in_child) _exit(0);
    int status, unwell = 0;
    while (wait(&status) > 0) unwell += status != 0;
    printf("%d children did not end well\n", unwell);
    return 0;
}
