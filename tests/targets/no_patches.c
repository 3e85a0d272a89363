/* Executes its arguments under MDWE, so that no code can be changed: the kernel refuses to make memory executable, also in every program
 * started from here. Prints the reason and ends with 3 if the kernel has no MDWE, if it does not refuse mprotect, or if /proc/self/mem can
 * be opened for writing. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "say.h"

#define SET_MDWE 65
#define REFUSE_EXEC_GAIN 1

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0L, 0L, 0L) != 0) return say("the kernel has no MDWE\n"), 3;
    void *page = (void *)((uintptr_t)main & ~(uintptr_t)4095);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) return say("mprotect is not refused\n"), 3;
    if (open("/proc/self/mem", O_RDWR) >= 0) return say("/proc/self/mem is there\n"), 3;
    execv(argv[1], argv + 1);
    return 4;
}
