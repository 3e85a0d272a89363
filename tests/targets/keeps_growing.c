/* Takes N megabytes at once, in blocks of 1,000,000 bytes, prints "ready", and then takes one block every T microseconds
 * without end, as a leak does: the kernel ends it when its cgroup has no memory left. Every block is allocated in `keep_growing`.
 *
 *     keeps_growing N T */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 1000000
static void *held[MOST];

__attribute__((noinline)) static void keep_growing(int from, int to, useconds_t pause) {
    for (int i = from; i < to; i++) {
        held[i] = malloc(1000000);
        memset(held[i], 1, 1000000);
        if (pause > 0) usleep(pause);
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    int at_once = atoi(words[1]);
    if (at_once < 0 || at_once > MOST) return 2;
    keep_growing(0, at_once, 0);
    if (write(1, "ready\n", 6) != 6) return 3;
    keep_growing(at_once, MOST, (useconds_t)atoi(words[2]));
    return 0;
}
