/* Stops the recorder, which is its parent, and forks COUNT children one after another that have no event of their own. The first half ends at
 * once, the second half executes PROGRAM, which cannot be recorded. Then lets the recorder continue. Usage: quick_ends COUNT PROGRAM.
 *
 * Blocks: one of 1000 bytes before, one of 1000 bytes after, both freed. Prints how long the children took, in milliseconds. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "say.h"

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[1]);
    ALLOCATE_AND_FREE(1000);
    pid_t recorder = getppid();
    if (kill(recorder, SIGSTOP)) return 3;
    long start = now_ms();
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i >= count / 2) execl(argv[2], argv[2], (char *)0);
            _exit(7);
        }
        int status = -1;
        int expected = i < count / 2 ? 7 : 0;
        wrong += waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != expected;
    }
    long took = now_ms() - start;
    if (kill(recorder, SIGCONT)) return 4;
    ALLOCATE_AND_FREE(1000);
    say("%ld ms, %d wrong\n", took, wrong);
    return 0;
}
