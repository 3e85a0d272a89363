/* A program that replaces itself, as wrappers and shells do: three images in one process.
 * Image n allocates 10 * n blocks of 1000 + n bytes (n = 1, 2, 3), frees 5 of them, and executes the next image through another
 * function. In the trace: 10 of 1001, 20 of 1002, 30 of 1003. Left at the end: only the last image's 25 of 1003, because the blocks
 * of an image end with it. No image may see heaptrack's variables in its environment. Each prints
 * "image N, 0 variables of ours, LD_PRELOAD=(none)". The last one returns 33. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

extern char **environ;

/* Each image has its own function, because the same code position in the same file would be one site for all images. */
NOINLINE static void *first(void) { void *p = malloc(1001); FRAME(); return p; }
NOINLINE static void *second(void) { void *p = malloc(1002); FRAME(); return p; }
NOINLINE static void *third(void) { void *p = malloc(1003); FRAME(); return p; }

int main(int argc, char **argv) {
    int image = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < 10 * image; i++) {
        void *made = image == 1 ? first() : image == 2 ? second() : third();
        KEEP(made);
        if (i < 5) free(made);
    }
    int traces = 0;
    for (char **entry = environ; *entry; entry++) traces += strstr(*entry, "HEAPTRACK") != NULL;
    say("image %d, %d variables of ours, LD_PRELOAD=%s\n", image, traces, getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "(none)");
    char *next[] = {argv[0], image == 1 ? "2" : "3", NULL};
    if (image == 1) {
        /* First an exec that fails. The program must continue as if it had not been tried. */
        if (execv("/nonexistent/program", next) != -1 || errno != ENOENT) return 1;
        execv(argv[0], next);
    }
    if (image == 2) {
        char *own[] = {"ONLY=this", NULL};
        execve(argv[0], next, own);
    }
    return image == 3 ? 33 : 1;
}
