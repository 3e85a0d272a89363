// A process whose children end in every way, one after another. Usage: ends CHILDREN [wait]. With `wait` it first reads a line. No two
// blocks of 1,000,000 bytes are ever held at the same time: each child that has one ends before its parent allocates the next one, and each
// block that a child inherits is freed by the parent after the end of that child. A child with two threads has a smaller block, because
// libc allocates for the second thread.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 1000000

static void *volatile kept;
static int ready[2];

static void *block(size_t size) { return memset(malloc(size), 1, size); }

static void *other_thread(void *unused) {
    if (write(ready[1], "x", 1) == 1) pause();
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int children = atoi(argv[1]);
    char line[16];
    if (argc > 2 && read(0, line, sizeof line) <= 0) return 3;
    if (pipe(ready)) return 4;
    for (int i = 0; i < children; i++) {
        int kind = i % 5, inherits = kind == 3;
        if (inherits) kept = block(SIZE);
        if (fork() == 0) {
            // A child without an event of its own.
            if (inherits) _exit(0);
            kept = block(kind == 4 ? SIZE / 2 : SIZE);
            if (kind == 0) _exit(0);
            if (kind == 1) exit(0);
            pthread_t thread;
            if (kind == 4 && (pthread_create(&thread, 0, other_thread, 0) || read(ready[0], line, 1) != 1)) abort();
            return 0;
        }
        wait(0);
        if (inherits) free(kept);
        kept = block(SIZE);
        free(kept);
    }
    return 0;
}
