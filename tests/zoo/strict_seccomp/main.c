/* Enters seccomp's strict mode, in which only read, write, _exit and sigreturn are allowed: 10,000 blocks. */
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../blocks/zoo.h"

int main(void) {
    /* The heap may not grow afterwards. */
    free(malloc(100000));
    zoo_ready();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        return 1;
    char line[32];
    int length = snprintf(line, sizeof line, "%ld\n", zoo_blocks(10000));
    if (write(1, line, (size_t)length) != length)
        syscall(SYS_exit, 2);
    syscall(SYS_exit, 7);
}
