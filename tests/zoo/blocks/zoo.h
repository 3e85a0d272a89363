/* For the C and C++ programs of the zoo: `zoo_blocks` of blocks.c, and `zoo_ready`, which prints "ready" and waits for
 * a line on stdin. */
#ifndef ZOO_H
#define ZOO_H
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
long zoo_blocks(long count);

static inline void zoo_ready(void) {
    puts("ready");
    fflush(stdout);
    for (int byte = getchar(); byte != '\n' && byte != EOF;)
        byte = getchar();
}
#endif
