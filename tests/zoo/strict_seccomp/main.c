/* Enters seccomp's strict mode, which allows only read, write, exit and sigreturn: 10,000 blocks. Half of them are
 * requested in a call that is eight pages deeper than the call that entered strict mode. */
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../blocks/zoo.h"

static volatile long sum;

__attribute__((noinline)) static void deeper(void) {
    volatile char frame[32 << 10];
    frame[0] = frame[sizeof frame - 1] = 1;
    sum += zoo_blocks(5000);
    frame[1] = 1;
}

/* The heap may not grow in strict mode. While a block is held, it does not shrink either. */
__attribute__((noinline)) static void enter(void) {
    char *held = malloc(20000), *rest = malloc(60000);
    memset(held, 1, 20000);
    free(rest);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        exit(1);
}

int main(void) {
    zoo_ready();
    enter();
    deeper();
    sum += zoo_blocks(5000);
    char line[32];
    int length = snprintf(line, sizeof line, "%ld\n", sum);
    if (write(1, line, (size_t)length) != length)
        syscall(SYS_exit, 2);
    syscall(SYS_exit, 7);
}
