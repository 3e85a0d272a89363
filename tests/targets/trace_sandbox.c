/* Forks a child that enters seccomp's strict mode before its first malloc: any system call but read, write and exit kills it then.
 * Prints how the child ended: "child 0". */
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "say.h"

int main(void) {
    /* The heap is created before, so that malloc itself needs no system call. */
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
