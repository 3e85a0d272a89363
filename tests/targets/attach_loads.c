/* Prints "ready". For each line on stdin it loads each library in its arguments, calls its function
 * `work`, which returns an allocated block, frees the block, and unloads the library. Then it prints "done". */
#include <dlfcn.h>
#include <stdlib.h>
#include "say.h"

int main(int argc, char **argv) {
    char byte;
    say("ready\n");
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        for (int i = 1; i < argc; i++) {
            void *library = dlopen(argv[i], RTLD_NOW);
            if (!library) return 1;
            void *(*work)(void) = (void *(*)(void))dlsym(library, "work");
            if (!work) return 1;
            free(work());
            dlclose(library);
        }
        say("done\n");
    }
    return 0;
}
