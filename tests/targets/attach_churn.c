/* Threads and children that begin and end all the time. Prints "ready". When stdin ends, it prints "right THREADS CHILDREN" and
 * ends. If a child fails, it prints "wrong STATUS" and ends with code 97 at once.
 *
 * Each thread allocates and frees 20 blocks of 5001 bytes and ends. Each forked child does so with 5002 bytes; children are never
 * recorded. After each forked child it runs /bin/true by posix_spawn. A SIGALRM comes every millisecond. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "say.h"

static volatile int stop;
static volatile long ticks;
static long threads, children;

static void tick(int number) {
    (void)number;
    ticks++;
}

static void *calls(void *argument) {
    size_t size = (size_t)argument;
    char *made[20];
    for (int i = 0; i < 20; i++) {
        made[i] = malloc(size);
        if (!made[i]) abort();
        memset(made[i], i, size);
    }
    for (int i = 0; i < 20; i++) {
        if (made[i][size - 1] != (char)i) abort();
        free(made[i]);
    }
    return NULL;
}

static void *make_threads(void *unused) {
    while (!stop) {
        pthread_t some[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&some[i], NULL, calls, (void *)5001) != 0) abort();
        for (int i = 0; i < 4; i++) pthread_join(some[i], NULL);
        threads += 4;
    }
    return unused;
}

static void expect_success(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        say("wrong %x\n", status);
        _exit(97);
    }
    children++;
}

static void *make_children(void *unused) {
    char *arguments[] = {"true", NULL};
    while (!stop) {
        pid_t child = fork();
        if (child == 0) {
            calls((void *)5002);
            _exit(0);
        }
        expect_success(child);
        if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, NULL) != 0) abort();
        expect_success(child);
    }
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_t first, second;
    pthread_create(&first, NULL, make_threads, NULL);
    pthread_create(&second, NULL, make_children, NULL);
    say("ready\n");
    char byte;
    while (read(0, &byte, 1) == 1) {}
    stop = 1;
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    say("right %ld %ld\n", threads, children);
    return 0;
}
