// Changes its mappings in every way, and prints what it counted itself. With the argument `wait` it first waits for a
// line, then for another one at the end. With `slow` it takes its time.
//
// With P pages of 4096 bytes, in 3 threads, each of them once:
//   mmap    2 (16 P and 10 P), MAP_FIXED over 4 P of the first, and a file of 3 P through mmap64
//   munmap  2 P at the head of the second, 3 P in its middle, 1 P that was never mapped; one that fails is not counted
//   mremap  the rest of the second (its last 5 P) grows to 40 P
//   madvise 6 P with DONTNEED, 2 P with FREE; WILLNEED is not counted
//   shmat   of 7 P, and shmdt of it
// Before that it allocates and frees 300 blocks of 200 kB, for which the allocator maps memory itself.
// What is left: 16 P of the first (12 and 4), 40 P of the second, 3 P of the file.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define P 4096UL
#define THREADS 3

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(9);
    }
}

__attribute__((noinline)) static char *reserve(size_t pages) {
    char *at = mmap(NULL, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}

__attribute__((noinline)) static char *grow(char *at, size_t from, size_t to) {
    at = mremap(at, from * P, to * P, MREMAP_MAYMOVE);
    check(at != MAP_FAILED, "mremap");
    return at;
}

static int is_slow;

static void rest(void) {
    if (is_slow) usleep(60000);
}

static void *work(void *argument) {
    (void)argument;
    rest();
    char *first = reserve(16), *second = reserve(10);
    char *over = mmap(first + 12 * P, 4 * P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check(over == first + 12 * P, "MAP_FIXED");
    FILE *file = tmpfile();
    check(file && ftruncate(fileno(file), 3 * P - 100) == 0, "tmpfile");
    check(mmap64(NULL, 3 * P - 100, PROT_READ, MAP_SHARED, fileno(file), 0) != MAP_FAILED, "mmap64");
    fclose(file);
    rest();
    check(munmap(second, 2 * P) == 0 && munmap(second + 2 * P, 3 * P) == 0, "munmap");
    check(munmap((char *)0x10000, P) == 0, "munmap of nothing");
    errno = 0;
    check(munmap(second + 1, P) == -1 && errno == EINVAL, "munmap that fails");
    errno = 0;
    check(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL, "empty mmap");
    memset(first, 1, 12 * P);
    check(madvise(first, 6 * P, MADV_DONTNEED) == 0 && madvise(first + 6 * P, 2 * P, MADV_FREE) == 0, "madvise");
    check(madvise(first, P, MADV_WILLNEED) == 0, "madvise");
    rest();
    second = grow(second + 5 * P, 5, 40);
    second[40 * P - 1] = 1;
    int id = shmget(IPC_PRIVATE, 7 * P, IPC_CREAT | 0600);
    check(id >= 0, "shmget");
    char *shared = shmat(id, NULL, 0);
    check(shared != (char *)-1, "shmat");
    shmctl(id, IPC_RMID, NULL);
    rest();
    check(shmdt(shared) == 0, "shmdt");
    return NULL;
}

static void say_and_wait(const char *what) {
    char line[16];
    puts(what);
    fflush(stdout);
    check(fgets(line, sizeof line, stdin) != NULL, "stdin");
}

int main(int argc, char **argv) {
    int waits = argc > 1 && strcmp(argv[1], "wait") == 0;
    is_slow = argc > 1 && strcmp(argv[1], "slow") == 0;
    if (waits) say_and_wait("ready");
    static void *blocks[300];
    for (int i = 0; i < 300; i++) memset(blocks[i] = malloc(200000), 1, 200000);
    for (int i = 0; i < 300; i++) free(blocks[i]);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (waits) say_and_wait("done");
    return 0;
}
