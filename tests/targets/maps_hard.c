// Maps memory where hooks are easily wrong, and prints how often it called mmap and munmap. The first argument says where:
// `early`: before any constructor, `handler`: in a signal handler that interrupts malloc, free, mmap and munmap at any place,
// `sandbox`: where any system call but mmap, munmap, write and exit_group is a crash, `jump`: in a handler that leaves with
// siglongjmp.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile unsigned long maps, unmaps;

static void map_and_unmap(void) {
    char *at = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(8);
    __atomic_fetch_add(&maps, 1, __ATOMIC_RELAXED);
    if (munmap(at + 4096, 4096) != 0 || munmap(at, 8 * 4096) != 0) _exit(9);
    __atomic_fetch_add(&unmaps, 2, __ATOMIC_RELAXED);
}

static void early(void) { map_and_unmap(); }
__attribute__((section(".preinit_array"), used)) static void (*before_all)(void) = early;

static void handler(int signal) {
    (void)signal;
    map_and_unmap();
}

static sigjmp_buf place;

static void leave(int signal) {
    (void)signal;
    map_and_unmap();
    siglongjmp(place, 1);
}

static pthread_t main_thread;
static volatile int is_over;

static void *disturb(void *argument) {
    (void)argument;
    for (int i = 0; i < 3000; i++) {
        pthread_kill(main_thread, SIGUSR1);
        usleep(20);
    }
    is_over = 1;
    return NULL;
}

static void forbid(void) {
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(7);
}

int main(int argc, char **argv) {
    const char *where = argc > 1 ? argv[1] : "early";
    char line[64];
    if (strcmp(where, "handler") == 0 || strcmp(where, "jump") == 0) {
        signal(SIGUSR1, where[0] == 'h' ? handler : leave);
        main_thread = pthread_self();
        pthread_t thread;
        sigsetjmp(place, 1);
        static int is_started;
        if (!is_started) {
            is_started = 1;
            pthread_create(&thread, NULL, disturb, NULL);
        }
        while (!is_over) {
            if (where[0] == 'h') {
                free(malloc(100));
                map_and_unmap();
            }
        }
    } else if (strcmp(where, "sandbox") == 0) {
        forbid();
        for (int i = 0; i < 100000; i++) map_and_unmap();
    }
    int length = snprintf(line, sizeof line, "%lu %lu\n", maps, unmaps);
    if (write(1, line, length) != length) return 1;
    _exit(0);
}
