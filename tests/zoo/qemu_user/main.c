/* A program for another architecture. It allocates on its own emulated heap, so only qemu's own calls are recorded. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    long sum = 0;
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    for (int i = 0; i < 10000; i++) {
        char *block = malloc(4321);
        block[i % 4321] = 1;
        sum += block[i % 4321];
        free(block);
    }
    printf("%ld\n", sum);
    return 0;
}
