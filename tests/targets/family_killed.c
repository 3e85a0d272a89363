// Four processes that allocate and free until the first one says stop, after MS milliseconds. Usage: family_killed FILE MS PAUSE. Each counts its
// calls in FILE, which all of them map, after the call has returned. At the end the first process prints the counts of all, with `end=exit`,
// or `end=killed` for those that a signal ended. After each 64 calls a process sleeps for PAUSE microseconds, unless that is 0.
//
// FILE outlives the processes. After a word of 8 bytes it has 4 words for each process: the pid, allocations, bytes, frees.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 4
#define BLOCKS 64

struct count {
    volatile long pid;
    volatile unsigned long allocations, bytes, frees;
};
static struct shared {
    volatile long stop;
    struct count count[PROCESSES];
} *shared;
static unsigned pause_us;

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static void churn(struct count *count, unsigned seed, long long until) {
    void *block[BLOCKS] = {0};
    for (unsigned n = 0; !shared->stop; n++) {
        if (until && n % 256 == 0 && now_ms() >= until) shared->stop = 1;
        if (pause_us && n % 64 == 63) usleep(pause_us);
        seed = seed * 1664525 + 1013904223;
        unsigned i = seed >> 16 & (BLOCKS - 1);
        if (block[i]) {
            free(block[i]);
            block[i] = 0;
            count->frees++;
        } else {
            size_t size = 16 + (seed >> 22);
            block[i] = malloc(size);
            count->allocations++;
            count->bytes += size;
        }
    }
}

// Unlike dprintf, it does not allocate.
static void tell(const char *format, ...) {
    char line[200];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (write(1, line, length) != length) abort();
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    pause_us = (unsigned)atoi(argv[3]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *shared) != 0) return 2;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) return 2;
    shared->count[0].pid = getpid();
    for (int i = 1; i < PROCESSES; i++) {
        int pid = fork();
        if (pid == 0) {
            churn(&shared->count[i], i, 0);
            _exit(0);
        }
        shared->count[i].pid = pid;
    }
    churn(&shared->count[0], 99, now_ms() + atoi(argv[2]));
    int status;
    for (int pid; (pid = wait(&status)) > 0;) {
        for (int i = 1; i < PROCESSES; i++) {
            struct count *count = &shared->count[i];
            if (count->pid == pid)
                tell("pid=%d end=%s allocations=%lu bytes=%lu frees=%lu\n", pid, WIFEXITED(status) ? "exit" : "killed",
                        count->allocations, count->bytes, count->frees);
        }
    }
    struct count *own = &shared->count[0];
    tell("pid=%ld end=exit allocations=%lu bytes=%lu frees=%lu\n", own->pid, own->allocations, own->bytes, own->frees);
    return 0;
}
