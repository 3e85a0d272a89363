/* pool_user LIBRARY...: opens each library and calls its use_pool. Prints "used N". */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int used = 0;
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        void (*use)(void) = library ? (void (*)(void))dlsym(library, "use_pool") : NULL;
        if (!use) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        use();
        used++;
    }
    printf("used %d\n", used);
    return 0;
}
