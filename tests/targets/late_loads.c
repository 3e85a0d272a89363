// Prints `ready`, waits for a line, loads and unloads a library five times, and prints `done`.
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (int i = 0; i < 5; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (!library || dlclose(library)) return 2;
    }
    puts("done");
    return 0;
}
