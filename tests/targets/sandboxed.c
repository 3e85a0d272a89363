/* Keeps 91 bytes and enters a seccomp sandbox that kills it for any system call but write, exit_group and those that
 * malloc itself needs (brk, mmap, munmap, mremap, madvise). Then it allocates and frees 1000000 blocks of 90 bytes
 * as fast as it can. heaptrack must make no system call of its own there. Prints "sandboxed done". */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "say.h"

#define ALLOW(number)                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),       \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void) {
    KEEP(malloc(91));
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mremap), ALLOW(SYS_madvise),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 2;
    for (int i = 0; i < 1000000; i++) ALLOCATE_AND_FREE(90);
    say("sandboxed done\n");
    return 0;
}
