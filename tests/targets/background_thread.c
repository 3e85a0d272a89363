/* Turns on the background thread of jemalloc, which starts it inside of `mallctl`. The loader allocates one block for that thread, so
 * the stack of that block goes through the allocator to `start` and `main`. Prints "started". */
#include <jemalloc/jemalloc.h>
#include <stdbool.h>
#include "say.h"

NOINLINE static int start(void) {
    bool on = true;
    int error = mallctl("background_thread", NULL, NULL, &on, sizeof on);
    FRAME();
    return error;
}

int main(void) {
    if (start() != 0)
        return 1;
    say("started\n");
    return 0;
}
