/* Maps 3 pages by the symbol `mmap64`, which old programs call, and then no page, which fails. Prints errno of that. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include "say.h"

extern void *map_64(void *, size_t, int, int, int, long) __asm__("mmap64");

int main(void) {
    if (map_64(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
    errno = 0;
    void *none = map_64(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("%s with %d\n", none == MAP_FAILED ? "failed" : "mapped", errno);
    return 0;
}
