/* Like libpool.c, but with heaptrack_api.h. use_pool reports 50 blocks of 34 bytes, 20 of them freed. */
#include "heaptrack_api.h"

static char memory[50 * 64];

void use_pool(void) {
    for (int i = 0; i < 50; i++) {
        heaptrack_report_alloc(memory + i * 64, 34);
        if (i < 20) {
            heaptrack_report_free(memory + i * 64);
        }
    }
}
