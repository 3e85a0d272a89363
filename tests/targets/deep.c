/* Recursion 100,000 levels deep. It calls malloc(40) at each 1000th level (100 blocks, all freed when the
 * level returns) and malloc(41) at the deepest level (left). It does this twice, so that the second descent
 * meets stacks that are in the memo. Prints "deep 4". Own blocks: 200 of 40 bytes (0 left),
 * 2 of 41 (2 left). A stack is complete or cut in the middle, never at the root, so its last frames are
 * always those of main and the process's start. */
#include <stdlib.h>
#include "say.h"

NOINLINE static int down(int level) {
    void *made = NULL;
    if (level % 1000 == 0) made = malloc(40);
    int result = level;
    if (level == 100000) KEEP(malloc(41));
    else result += down(level + 1) & 1;
    FRAME();
    free(made);
    return result;
}

int main(void) {
    int first = down(1);
    int second = down(1);
    say("deep %d\n", first + second);
    return 0;
}
