/* Opens and closes two libraries, red and blue, in turns, 50 times each. Both get the same address, as
 * libraries of the same size do. Arguments: the two files. All blocks by size: 50 of 301 whose leaf is in
 * libred, 50 of 302 in libblue, all freed. Prints "same address: yes" if a library got the address of the one before
 * in at least 90 of the 100 turns. */
#include <dlfcn.h>
#include <stdlib.h>
#include "say.h"

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    void *last = NULL;
    int same = 0;
    for (int i = 0; i < 100; i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        if (!library) return say("%s\n", dlerror()), 1;
        void *(*work)(void) = (void *(*)(void))dlsym(library, "work");
        same += (void *)work == last;
        last = (void *)work;
        void *made = work();
        KEEP(made);
        free(made);
        dlclose(library);
    }
    say("same address: %s\n", same >= 90 ? "yes" : "no");
    return 0;
}
