/* A plugin with RUNPATH=$ORIGIN/deps that opens libinner.so by its bare name: the loader looks at the RUNPATH of the library
 * that CALLS dlopen, so a wrapper around dlopen breaks it. */
#include <dlfcn.h>
#include <stddef.h>
void *plugin(void) {
    void *library = dlopen("libinner.so", RTLD_NOW);
    if (!library) return NULL;
    void *(*inner)(void) = (void *(*)(void))dlsym(library, "inner");
    void *made = inner();
    __asm__ volatile("" : : : "memory");
    return made;
}
