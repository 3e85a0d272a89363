/* Two threads, one for each library in the arguments: each loads its library, calls `work`, frees the block that it returns, and
 * unloads the library, all the time. Prints "ready", and "right" when stdin ends. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include "say.h"

static volatile int stop;

static void *load(void *name) {
    while (!stop) {
        void *library = dlopen(name, RTLD_NOW);
        if (!library) _exit(1);
        void *(*work)(void) = (void *(*)(void))dlsym(library, "work");
        if (!work) _exit(1);
        free(work());
        dlclose(library);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, load, argv[i + 1]);
    say("ready\n");
    char byte;
    while (read(0, &byte, 1) == 1) {}
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    say("right\n");
    return 0;
}
