/* Keeps 100 bytes and forks a child that enters seccomp's strict mode before its first malloc: from then on any system call but read,
 * write, exit and sigreturn kills it. The child allocates and frees 10 blocks of 50 bytes. Prints its wait status: "child 0". */
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "say.h"

int main(void) {
    /* The first malloc creates the heap, so that malloc needs no system call in the child. */
    void *first = malloc(100);
    KEEP(first);
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(1);
        for (int i = 0; i < 10; i++) {
            void *made = malloc(50);
            KEEP(made);
            free(made);
        }
        syscall(SYS_exit, 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    say("child %d\n", status);
    return 0;
}
