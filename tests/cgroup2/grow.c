/* Holds 120 blocks of a megabyte in `grow`, waits until a file exists, and then takes more without end. For run.sh, which lets
 * the kernel end it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *held[100000];

__attribute__((noinline)) static void grow(int from, int to) {
    for (int i = from; i < to; i++) {
        held[i] = malloc(1000000);
        memset(held[i], 1, 1000000);
    }
}

int main(int count, char **words) {
    if (count < 2) return 2;
    grow(0, 120);
    while (access(words[1], F_OK) != 0) usleep(1000);
    grow(120, 100000);
    return 0;
}
