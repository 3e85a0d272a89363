/* Keeps 5 blocks of 111 bytes, prints "ready", and waits for SIGUSR1, which it handles itself. Then
 * it keeps 10 blocks of 555 bytes, prints "kept" and waits for SIGTERM, at which it ends with 6. */
#include <signal.h>
#include <stdlib.h>
#include "say.h"

static volatile sig_atomic_t asked, ended;
static void on_usr1(int signal) { (void)signal, asked++; }
static void on_term(int signal) { (void)signal, ended++; }

NOINLINE static void keep(size_t size, int count) {
    while (count-- > 0) KEEP(malloc(size));
    FRAME();
}

int main(void) {
    signal(SIGUSR1, on_usr1);
    signal(SIGTERM, on_term);
    keep(111, 5);
    say("ready\n");
    while (!asked) usleep(1000);
    keep(555, 10);
    say("kept\n");
    while (!ended) usleep(1000);
    return 6;
}
