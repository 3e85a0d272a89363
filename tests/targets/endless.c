/* Until SIGTERM, allocates and frees blocks of 1 to 4000 bytes, at most 500,000 per second, and keeps every hundredth, but at most
 * 200,000. Then prints "kept N" and ends with 7. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void stop(int signal) {
    (void)signal;
    over = 1;
}

int main(void) {
    unsigned long kept = 0;
    signal(SIGTERM, stop);
    for (unsigned long n = 0; !over; n++) {
        char *volatile block = malloc(1 + n % 4000);
        *block = 1;
        if (n % 500 == 0) {
            usleep(1000);
        }
        if (n % 100 == 0 && kept < 200000) {
            kept++;
        } else {
            free(block);
        }
    }
    printf("kept %lu\n", kept);
    return 7;
}
