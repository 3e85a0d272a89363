/* Measures the stack that the first malloc of a forked child uses. It switches to a stack of 64 KB that is
 * filled with a pattern, calls malloc(70), and looks how far the pattern was overwritten. Prints the bytes that were used: `bytes=N`. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include "painted_stack.h"
#include "say.h"

static void body(void) {
    char here;
    lowest_sp = &here;
    void *made = malloc(70);
    KEEP(made);
}

int main(void) {
    /* The call causes lazy binding, so that it is not measured. */
    void *first = malloc(70);
    KEEP(first);
    pid_t pid = fork();
    if (pid == 0) {
        say("bytes=%zu\n", stack_used_by(body));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status != 0;
}
