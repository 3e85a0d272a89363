/* Keeps 10 bytes, enters a seccomp filter that allows the system calls that the loader and a small program need and kills the
 * process for any other, and executes its arguments. Prints nothing. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "say.h"

#define ALLOW(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_execve), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_access), ALLOW(SYS_openat), ALLOW(SYS_newfstatat),
        ALLOW(SYS_fstat), ALLOW(SYS_close), ALLOW(SYS_read), ALLOW(SYS_pread64), ALLOW(SYS_mprotect), ALLOW(SYS_munmap),
        ALLOW(SYS_arch_prctl), ALLOW(SYS_set_tid_address), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq),
        ALLOW(SYS_prlimit64), ALLOW(SYS_getrandom), ALLOW(SYS_write), ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    KEEP(malloc(10));
    if (argc < 2) return 1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 2;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 3;
    execv(argv[1], argv + 1);
    return 4;
}
