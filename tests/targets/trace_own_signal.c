/* Handles SIGUSR1 and ignores SIGUSR2 itself. Keeps 10 blocks of 321 bytes and prints "ready". At SIGTERM it
 * prints "handled N", how often its handler of SIGUSR1 ran, and ends. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "say.h"

static volatile sig_atomic_t handled, ended;
static void on_usr1(int signal) { (void)signal, handled++; }
static void on_term(int signal) { (void)signal, ended++; }

int main(void) {
    signal(SIGUSR1, on_usr1);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGTERM, on_term);
    for (int i = 0; i < 10; i++) KEEP(malloc(321));
    say("ready\n");
    while (!ended) usleep(1000);
    say("handled %d\n", (int)handled);
    return 0;
}
