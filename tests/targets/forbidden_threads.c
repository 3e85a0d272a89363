/* Several threads, one of which forbids itself something. First argument: what happens.
 *   handover   Two threads pass 20000 blocks of 70 bytes to each other: the one allocates, the other frees, in turns. The first
 *              one gives the time stamp counter up after 5000. Prints "passed 20000".
 *   starts     The main thread gives the counter up, then starts 4 threads with 1000 blocks of 70 bytes each. Prints "started 4".
 *   refused    The kernel refuses three requests for a filter, and one for strict mode with invalid flags, by which libseccomp finds
 *              out whether seccomp exists. Then a new thread allocates 100 blocks of 70 bytes. Prints "refused 4".
 *   slotless   A thread that has not allocated yet enters a filter that kills the process for any system call but those that malloc
 *              and waiting need, waits half a second and allocates 1000 blocks of 70 bytes. Prints "slotless done".
 *   tsync      4 threads allocate and free 100000 blocks of 70 bytes each. Meanwhile the main thread puts all threads behind the
 *              filter of slotless. Prints "synced".
 *   strict     A thread is in seccomp's strict mode, waiting, before the line is read. Then the main thread allocates 100 blocks of
 *              70 bytes. Prints "beside 100".
 *   filtered   Like strict, but the waiting thread is behind the filter of slotless.
 *   vfork      A child of vfork enters a filter and ends. Then a new thread allocates 100 blocks of 70 bytes. Prints "forked".
 * All blocks are freed. In each case the main thread allocates and frees one block of 70 bytes first. If a second argument is given,
 * it then prints "ready" and waits for a line on stdin; of the steps above, only the waiting thread of strict and filtered comes
 * before that line. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "say.h"

#define ALLOW(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mprotect),
    ALLOW(SYS_clock_nanosleep), ALLOW(SYS_sched_yield),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog program = {sizeof rules / sizeof *rules, rules};

static void churn(int blocks) {
    for (int i = 0; i < blocks; i++) {
        void *made = malloc(70);
        KEEP(made);
        free(made);
    }
}

static pthread_t start(void *(*work)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) != 0) _exit(98);
    return thread;
}

static void *churns(void *blocks) {
    churn((int)(long)blocks);
    return NULL;
}

/* Each of the two threads has a box for the block that the other one passes to it. */
static _Atomic(void *) boxes[2];

static void give(int whose) {
    while (atomic_load(&boxes[whose]) != NULL) sched_yield();
    atomic_store(&boxes[whose], malloc(70));
}

static void take(int whose) {
    void *block;
    while ((block = atomic_exchange(&boxes[whose], NULL)) == NULL) sched_yield();
    free(block);
}

static void *second(void *unused) {
    for (int i = 0; i < 10000; i++) {
        take(1);
        give(0);
    }
    return unused;
}

static void hand_over(void) {
    pthread_t thread = start(second, NULL);
    for (int i = 0; i < 10000; i++) {
        if (i == 2500 && prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) _exit(1);
        give(1);
        take(0);
    }
    pthread_join(thread, NULL);
    say("passed 20000\n");
}

static void start_threads(void) {
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) _exit(1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(churns, (void *)1000L);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("started 4\n");
}

static void be_refused(void) {
    int refused = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1;
    refused += syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, ~0u, &program) == -1;
    refused += syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1;
    refused += syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1;
    pthread_join(start(churns, (void *)100L), NULL);
    say("refused %d\n", refused);
}

static atomic_int begun, over;

/* A thread that ends would make system calls that the filter forbids, so it stays. */
static void stay(void) {
    atomic_fetch_add(&over, 1);
    for (;;) sched_yield();
}

static void *enters(void *unused) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
    nanosleep(&(struct timespec){0, 500000000}, NULL);
    churn(1000);
    stay();
    return unused;
}

static void *churns_on(void *unused) {
    churn(1);
    atomic_fetch_add(&begun, 1);
    churn(99999);
    stay();
    return unused;
}

static void sync_threads(void) {
    for (int i = 0; i < 4; i++) start(churns_on, NULL);
    while (atomic_load(&begun) < 4) sched_yield();
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) _exit(2);
    while (atomic_load(&over) < 4) sched_yield();
    say("synced\n");
}

/* Waits in read for ever, in a sandbox. */
static void *waits(void *mode) {
    static int ends[2];
    char byte;
    if (pipe(ends) != 0 || prctl(PR_SET_SECCOMP, (long)mode, &program) != 0) _exit(2);
    atomic_fetch_add(&begun, 1);
    while (read(ends[0], &byte, 1) >= 0) continue;
    return NULL;
}

static void fork_there(void) {
    pid_t pid = vfork();
    if (pid == 0) _exit(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0);
    int status = 1;
    waitpid(pid, &status, 0);
    pthread_join(start(churns, (void *)100L), NULL);
    say(status == 0 ? "forked\n" : "not forked\n");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    churn(1);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 3;
    int is_strict = strcmp(what, "strict") == 0, is_beside = is_strict || strcmp(what, "filtered") == 0;
    if (is_beside) {
        start(waits, (void *)(is_strict ? (long)SECCOMP_MODE_STRICT : (long)SECCOMP_MODE_FILTER));
        while (atomic_load(&begun) < 1) sched_yield();
    }
    if (argc > 2) {
        char byte;
        say("ready\n");
        while (read(0, &byte, 1) == 1 && byte != '\n') continue;
    }
    if (is_beside) {
        churn(100);
        say("beside 100\n");
    }
    if (strcmp(what, "handover") == 0) hand_over();
    else if (strcmp(what, "starts") == 0) start_threads();
    else if (strcmp(what, "refused") == 0) be_refused();
    else if (strcmp(what, "slotless") == 0) {
        start(enters, NULL);
        while (atomic_load(&over) < 1) sched_yield();
        say("slotless done\n");
    } else if (strcmp(what, "tsync") == 0) sync_threads();
    else if (strcmp(what, "vfork") == 0) fork_there();
    return 0;
}
