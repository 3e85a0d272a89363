/* Opens a library and calls its function `work`: opens LIBRARY [lazy|now|deep|deep-now|namespace]. Prints "worked", or why
 * the library cannot be opened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "say.h"

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "lazy";
    void *library;
    if (!strcmp(how, "namespace"))
        library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    else if (!strcmp(how, "deep"))
        library = dlopen(argv[1], RTLD_LAZY | RTLD_DEEPBIND);
    else if (!strcmp(how, "deep-now"))
        library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    else
        library = dlopen(argv[1], strcmp(how, "now") ? RTLD_LAZY : RTLD_NOW);
    if (!library) return say("%s\n", dlerror()), 1;
    void (*work)(void);
    *(void **)&work = dlsym(library, "work");
    if (!work) return 2;
    work();
    say("worked\n");
    return 0;
}
