/* The allocators of own_names.h in a program: own_names [wait | LIBRARY]. A constructor does 10 rounds, main 90. With an argument, main first prints
 * "ready" and waits for a line. With a library, it then opens it and calls its function `work` instead. Prints "done", and waits
 * for another line. */
#include <dlfcn.h>
#include <stdio.h>
#include "own_names.h"

__attribute__((constructor)) static void begin(void) { own_names_work(10); }

static int wait_for_line(const char *word) {
    char line[80];
    puts(word);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && !wait_for_line("ready")) return 1;
    if (argc > 1 && strchr(argv[1], '/')) {
        void *library = dlopen(argv[1], RTLD_NOW);
        void (*work)(void) = library ? (void (*)(void))dlsym(library, "work") : NULL;
        if (!work) return 2;
        work();
    } else {
        own_names_work(90);
    }
    if (argc > 1) return !wait_for_line("done");
    puts("done");
    return 0;
}
