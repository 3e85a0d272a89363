/* Keeps 91 bytes, forbids itself the time stamp counter or system calls, allocates and frees 5000 blocks of 90 bytes, prints
 * "done" and ends with code 5. First argument: how.
 *   tsc, tsc_syscall             PR_SET_TSC through prctl, through syscall
 *   strict, strict_syscall       seccomp's strict mode through prctl, through syscall as prctl
 *   strict_seccomp               seccomp's strict mode through syscall as seccomp
 *   tsc_raw                      PR_SET_TSC by an own syscall instruction
 *   nothing                      forbids nothing
 * Second argument, if any: "before" prints "ready" and waits for a line on stdin before it forbids, "after" does so after that.
 * Third argument, if any: another number of blocks. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "say.h"

static long forbid(const char *how) {
    if (strcmp(how, "tsc") == 0) return prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    if (strcmp(how, "tsc_syscall") == 0) return syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (strcmp(how, "strict") == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (strcmp(how, "strict_syscall") == 0) return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    if (strcmp(how, "strict_seccomp") == 0) return syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
    if (strcmp(how, "tsc_raw") == 0) {
        long result;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_prctl), "D"(PR_SET_TSC), "S"(PR_TSC_SIGSEGV), "d"(0)
                         : "rcx", "r11", "memory");
        return result;
    }
    return strcmp(how, "nothing") == 0 ? 0 : -1;
}

static void wait_for_line(void) {
    char byte;
    say("ready\n");
    while (read(0, &byte, 1) == 1 && byte != '\n') continue;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "nothing", *when = argc > 2 ? argv[2] : "";
    int blocks = argc > 3 ? atoi(argv[3]) : 5000;
    /* The first malloc creates the heap, so that later ones need no system call. */
    KEEP(malloc(91));
    if (strcmp(when, "before") == 0) wait_for_line();
    if (forbid(how) != 0) return 1;
    if (strcmp(when, "after") == 0) wait_for_line();
    for (int i = 0; i < blocks; i++) {
        void *made = malloc(90);
        KEEP(made);
        free(made);
    }
    say("done\n");
    /* Strict mode does not allow exit_group. */
    syscall(SYS_exit, 5);
}
