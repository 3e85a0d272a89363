/* Reads 1000 numbers of 64 bytes, keeps the last 10 in a cache, and forgets to free that. Prints "1000 numbers". With an argument, it has
 * a regression: it keeps all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000
static char *cache[COUNT];

static char *parse(int number) {
    char *text = malloc(64);
    if (text) snprintf(text, 64, "number %d", number);
    return text;
}

int main(int argc, char **argv) {
    int kept = argc > 1 && strcmp(argv[1], "--keep") == 0 ? COUNT : 10;
    for (int i = 0; i < COUNT; i++) {
        free(cache[i % kept]);
        cache[i % kept] = parse(i);
    }
    fprintf(stderr, "%d numbers\n", COUNT);
    return 0;
}
