/* A process and a child that cuts itself off. Usage: family_faults KIND FOLDER. Both allocate 100 blocks of 1000 bytes, free every
 * second one, then the child does what KIND says (chroot into FOLDER, setuid, capset, unshare, seccomp, close, kill, plain), does the same
 * work again, forks a child that does it once, and ends. The parent works once more when the child has ended. Prints a line for each
 * process that ends: how many allocations it has made, and whether all its blocks kept their content. Must be run as root. */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "say.h"

static unsigned allocations, is_wrong;

static void work(void) {
    for (int i = 0; i < 100; i++) {
        unsigned char *block = malloc(1000);
        if (!block) _exit(98);
        memset(block, i, 1000);
        allocations++;
        KEEP(block);
        is_wrong |= block[999] != i;
        if (i % 2) free(block);
    }
}

/* Only reading, writing, forking, waiting, memory and the end are allowed. Anything else kills the process. */
static void forbid(void) {
    const int allowed[] = {SYS_read, SYS_write, SYS_clone, SYS_wait4, SYS_mmap, SYS_munmap, SYS_brk, SYS_exit_group,
                           SYS_set_robust_list, SYS_rseq, SYS_getpid};
    const int count = sizeof allowed / sizeof *allowed;
    struct sock_filter filter[sizeof allowed / sizeof *allowed * 2 + 2];
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {at, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(97);
}

/* Like a zygote of Chromium. The user stays root. */
static int give_up_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    return (int)syscall(SYS_capset, &head, none);
}

static void tell(const char *who) {
    say("%s: %u allocations, %s\n", who, allocations, is_wrong ? "wrong" : "right");
}

static int await(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) _exit(96);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *kind = argv[1];
    work();
    pid_t child = fork();
    if (child == 0) {
        allocations = 0;
        work();
        if (!strcmp(kind, "chroot") && (chroot(argv[2]) || chdir("/"))) return 1;
        if (!strcmp(kind, "setuid") && (setgid(65534) || setuid(65534))) return 1;
        if (!strcmp(kind, "capset") && give_up_capabilities()) return 1;
        if (!strcmp(kind, "unshare") && unshare(CLONE_NEWPID | CLONE_NEWNS)) return 1;
        if (!strcmp(kind, "seccomp")) forbid();
        if (!strcmp(kind, "close") && syscall(SYS_close_range, 3, ~0u, 0)) return 1;
        work();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            allocations = 0;
            work();
            tell("grandchild");
            _exit(0);
        }
        if (await(grandchild) != 0) _exit(95);
        tell("child");
        if (!strcmp(kind, "kill")) kill(getpid(), SIGKILL);
        _exit(7);
    }
    int status = await(child);
    work();
    say("the child's status is %d\n", status);
    tell("parent");
    return 0;
}
