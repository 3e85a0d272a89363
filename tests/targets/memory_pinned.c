// memory_pinned N: N blocks of 200 bytes from `session`, of which all but every hundredth are freed. Also 100 blocks of 5000 bytes from
// `other`, before them. Prints "ready", and waits for a line. Then it calls malloc_trim(0), frees the blocks of `session`, and calls malloc_trim(0)
// again. After each malloc_trim it prints by how much RSS is smaller than before the first one.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char input[64];

static long rss(void) {
    char text[256];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    long length = 0, got;
    static char all[8192];
    while (length < (long)sizeof all - 1 && (got = read(file, all + length, sizeof all - 1 - length)) > 0)
        length += got;
    close(file);
    all[length] = 0;
    const char *line = strstr(all, "\nRss:");
    if (!line || sscanf(line, "\nRss: %200s", text) != 1)
        exit(3);
    return atol(text) * 1024;
}

__attribute__((noinline)) static char *session(void) { return memset(malloc(200), 1, 200); }

__attribute__((noinline)) static char *other(void) { return memset(malloc(5000), 1, 5000); }

static void answer(const char *text) {
    if (write(1, text, strlen(text)) < 0)
        exit(4);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    long count = atol(argv[1]);
    static char *others[100];
    char **blocks = malloc(count * sizeof *blocks);
    for (int i = 0; i < 100; i++)
        others[i] = other();
    for (long i = 0; i < count; i++)
        blocks[i] = session();
    for (long i = 0; i < count; i++)
        if (i % 100)
            free(blocks[i]);
    answer("ready\n");
    if (read(0, input, sizeof input) <= 0)
        return 5;
    char text[64];
    long before = rss();
    malloc_trim(0);
    snprintf(text, sizeof text, "%ld\n", before - rss());
    answer(text);
    for (long i = 0; i < count; i += 100)
        free(blocks[i]);
    malloc_trim(0);
    snprintf(text, sizeof text, "%ld\n", before - rss());
    answer(text);
    return others[0][0] - 1;
}
