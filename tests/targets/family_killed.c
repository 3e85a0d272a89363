// Four processes that allocate and free until the first one says stop, after MS milliseconds. Usage: family_killed MS. Each counts its
// calls in memory that all of them share, after the call has returned. The first process prints the counts of all, with `end=exit`, or
// `end=killed` for those that a signal ended. First of all it prints the pids of all processes in one line.
#define _GNU_SOURCE
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
    volatile int pid;
    volatile unsigned long allocations, bytes, frees;
};
static struct shared {
    volatile int stop;
    struct count count[PROCESSES];
} *shared;

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static void churn(struct count *count, unsigned seed, long long until) {
    void *block[BLOCKS] = {0};
    for (unsigned n = 0; !shared->stop; n++) {
        if (until && n % 256 == 0 && now_ms() >= until) shared->stop = 1;
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
    if (argc < 2) return 2;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->count[0].pid = getpid();
    for (int i = 1; i < PROCESSES; i++) {
        int pid = fork();
        if (pid == 0) {
            churn(&shared->count[i], i, 0);
            _exit(0);
        }
        shared->count[i].pid = pid;
    }
    tell("%d %d %d %d\n", shared->count[0].pid, shared->count[1].pid, shared->count[2].pid, shared->count[3].pid);
    churn(&shared->count[0], 99, now_ms() + atoi(argv[1]));
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
    tell("pid=%d end=exit allocations=%lu bytes=%lu frees=%lu\n", own->pid, own->allocations, own->bytes, own->frees);
    return 0;
}
