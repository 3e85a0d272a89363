/* Loads the plugin given as argument, which loads a library through its own RUNPATH; 777 bytes are allocated in there (left),
 * and prints "plugin ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include "say.h"
int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return say("no plugin: %s\n", dlerror()), 1;
    void *(*plugin)(void) = (void *(*)(void))dlsym(library, "plugin");
    void *made = plugin();
    if (!made) return say("no inner: %s\n", dlerror()), 1;
    say("plugin ok\n");
    return 0;
}
