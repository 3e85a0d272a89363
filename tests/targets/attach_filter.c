/* Runs under a seccomp filter. The argument says which system call the filter forbids: "mremap", "getpid" or "sched_yield"
 * (the call kills the process), "nothing" (only acct fails), or "later": mremap, but only from the first line on, and a new thread
 * allocates. "strict" is seccomp's strict mode. Prints "ready". For each line on stdin it allocates and frees 10 blocks of 6001
 * bytes (none in strict mode) and prints "done". */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "say.h"

static void enter(unsigned forbidden, unsigned verdict) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, verdict),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(1);
}

static void *calls(void *unused) {
    for (int i = 0; i < 10; i++) {
        void *block = malloc(6001);
        KEEP(block);
        free(block);
    }
    return unused;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "nothing";
    say("ready\n");
    if (strcmp(what, "strict") == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    else if (strcmp(what, "mremap") == 0) enter(SYS_mremap, SECCOMP_RET_KILL_PROCESS);
    else if (strcmp(what, "getpid") == 0) enter(SYS_getpid, SECCOMP_RET_KILL_PROCESS);
    else if (strcmp(what, "sched_yield") == 0) enter(SYS_sched_yield, SECCOMP_RET_KILL_PROCESS);
    else if (strcmp(what, "later") != 0) enter(SYS_acct, SECCOMP_RET_ERRNO | EPERM);
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        if (strcmp(what, "later") == 0) {
            enter(SYS_mremap, SECCOMP_RET_KILL_PROCESS);
            pthread_t thread;
            pthread_create(&thread, NULL, calls, NULL);
            pthread_join(thread, NULL);
        } else if (strcmp(what, "strict") != 0) { /* In strict mode a system call that malloc makes would kill the process. */
            calls(NULL);
        }
        if (write(1, "done\n", 5) != 5) return 1;
    }
    syscall(SYS_exit, 0);
}
