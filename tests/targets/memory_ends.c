// 1500 mappings with a written page each, and then an end that can come at any moment: `memory_ends exit US` ends after that many
// microseconds, `memory_ends exec US` executes itself again, for ever. Between the mappings lie others that cannot be accessed, so
// that the kernel does not join them. They take about 6 MB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    for (int i = 0; i < 1500; i++) {
        char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pages[0] = 1;
        mprotect(pages + 4096, 4096, PROT_NONE);
    }
    char *blocks = malloc(1 << 20);
    memset(blocks, 1, 1 << 20);
    long ns = atol(argv[2]) * 1000;
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
    if (!strcmp(argv[1], "exec"))
        execv("/proc/self/exe", argv);
    return blocks[0] - 1;
}
