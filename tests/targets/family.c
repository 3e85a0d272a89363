// A tree of processes that count their own calls. Usage: family SEED DEPTH WIDTH [wait|TIMES]; with the word `wait` it first waits
// for a byte on stdin, with a number every process makes this many times as many calls. Each process allocates and frees at random, forks
// WIDTH children meanwhile (DEPTH times deep), and waits for them. A child frees some of the blocks that it inherits. Every third
// leaf executes this program again with DEPTH 0. Nothing else in it allocates: no stdio, no threads.
//
// Prints a line for each program in each process, when it ends: its pid, how it ends, and its counts.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 200

static void *block[BLOCKS];
static size_t size[BLOCKS];
static int is_own[BLOCKS];
static int times = 1;
static unsigned long long state;
static unsigned long allocations, bytes, frees, left, left_bytes, held, held_bytes, peak, inherited, inherited_bytes;

static unsigned random_below(unsigned limit) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % limit;
}

static void work(int steps) {
    for (steps *= times; steps > 0; steps--) {
        unsigned i = random_below(BLOCKS);
        if (!block[i]) {
            size[i] = 16 + random_below(2000);
            block[i] = malloc(size[i]);
            memset(block[i], 1, size[i]);
            is_own[i] = 1;
            allocations++, bytes += size[i], left++, left_bytes += size[i], held++, held_bytes += size[i];
            if (held_bytes > peak) peak = held_bytes;
        } else {
            free(block[i]);
            block[i] = 0;
            frees++, held--, held_bytes -= size[i];
            if (is_own[i]) left--, left_bytes -= size[i];
        }
    }
}

static void tell(const char *end) {
    char line[400];
    int length = snprintf(line, sizeof line,
        "pid=%d end=%s allocations=%lu bytes=%lu frees=%lu left=%lu left_bytes=%lu peak=%lu inherited=%lu inherited_bytes=%lu\n",
        getpid(), end, allocations, bytes, frees, left, left_bytes, peak, inherited, inherited_bytes);
    if (write(1, line, length) != length) abort();
}

static void run(int depth, int width);

static void begin_child(int seed, int depth, int width) {
    allocations = bytes = frees = left = left_bytes = 0;
    inherited = held, inherited_bytes = peak = held_bytes;
    memset(is_own, 0, sizeof is_own);
    state = seed;
    run(depth, width);
    if (depth == 0 && seed % 3 == 0) {
        char text[20];
        snprintf(text, sizeof text, "%d", seed + 1);
        tell("exec");
        execl("/proc/self/exe", "family", text, "0", "0", (char *)0);
        abort();
    }
    tell("exit");
    _exit(depth);
}

static void run(int depth, int width) {
    work(400);
    for (int i = 0; i < width && depth > 0; i++) {
        int seed = random_below(1 << 20);
        if (fork() == 0) begin_child(seed, depth - 1, width);
        work(300);
    }
    while (wait(0) > 0) work(50);
}

int main(int argc, char **argv) {
    char byte;
    if (argc < 4) return 2;
    if (argc > 4 && strcmp(argv[4], "wait") != 0) times = atoi(argv[4]);
    else if (argc > 4 && read(0, &byte, 1) != 1) return 3;
    state = strtoull(argv[1], 0, 10);
    run(atoi(argv[2]), atoi(argv[3]));
    tell("exit");
    return 0;
}
