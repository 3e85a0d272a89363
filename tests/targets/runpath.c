/* Loads the plugin in its argument, which loads a library through its own RUNPATH. That library
 * allocates 777 bytes (left). Prints "plugin ok". */
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
