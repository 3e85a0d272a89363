/* Under a seccomp filter that allows everything, a thread reports 1,000,000 blocks of 32 bytes while a timer interrupts it. The handler
 * runs on an alternate stack and reports one block of 16 bytes each time. All are freed. Prints the total number of reported blocks. With an
 * argument there is no filter. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include "../../include/heaptrack_api.h"

enum { PAIRS = 1000000, STACK = 1 << 16 };
static volatile long in_handler;
static char *stack;
static int has_filter;

static void handler(int signal) {
    (void)signal;
    void *block = (void *)(0x20000000 + ++in_handler * 16);
    heaptrack_report_alloc(block, 16);
    heaptrack_report_free(block);
}

static void forbid_nothing(void) {
    struct sock_filter rules[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) exit(4);
}

static void *work(void *unused) {
    (void)unused;
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    timer_t timer;
    char here;
    if (stack < &here) exit(5);
    sigaltstack(&alternate, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &often, NULL);
    if (has_filter) forbid_nothing();
    for (int i = 0; i < PAIRS; i++) {
        heaptrack_report_alloc((void *)0x10000000, 32);
        heaptrack_report_free((void *)0x10000000);
    }
    timer_settime(timer, 0, &never, NULL);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    has_filter = argc < 2;
    /* Mapped before the thread's own stack, so it is at a higher address. */
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGRTMIN);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_join(thread, NULL);
    printf("%ld\n", PAIRS + in_handler);
    return 0;
}
