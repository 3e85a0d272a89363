/* Takes argument 1 (10) megabytes in blocks of 64 KB, writes to every page and frees all. Then it writes `argument 2` bytes to the
 * file in argument 3 (so that RLIMIT_FSIZE matters). Prints "held GOT of WANTED, wrote W": its blocks, and the bytes or -errno of the
 * write. For the tests of limits. Own blocks: megabytes * 16 of 65536, all freed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"
int main(int argc, char **argv) {
    int count = (argc > 1 ? atoi(argv[1]) : 10) * 16, got = 0;
    static char *block[65536];
    for (; got < count; got++) {
        block[got] = malloc(65536);
        if (!block[got]) break;
        memset(block[got], 1, 65536);
    }
    for (int i = 0; i < got; i++) free(block[i]);
    int written = 0;
    if (argc > 3) {
        signal(SIGXFSZ, SIG_IGN);
        int fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        static char data[65536];
        ssize_t result = write(fd, data, (size_t)atoi(argv[2]));
        written = result < 0 ? -errno : (int)result;
        unlink(argv[3]);
    }
    say("held %d of %d, wrote %d\n", got, count, written);
    return got == count ? 0 : 1;
}
