/* Built with -O2 -fomit-frame-pointer: only CFI can walk it. alpha -> beta -> gamma_ -> delta, with variable-length arrays
 * and rbp used as an ordinary register in between; each allocates on its way.
 * By size: 1000 of 11 (alpha), 1000 of 12 (beta), 1000 of 13 (gamma_), 1000 of 14 (delta), all freed. Prints "sum 2223500". */
#include <stdlib.h>
#include <string.h>
#include "say.h"

static volatile long sink;

NOINLINE static long delta(long a, long b, long c, long d, long e, long f) {
    char *made = malloc(14);
    KEEP(made);
    /* Six values are live across a call, so they are in callee-saved registers, including rbp. */
    long sum = a * 3 + b * 5 + c * 7 + d * 11 + e * 13 + f * 17 + made[0] * 0;
    free(made);
    return sum + a + b + c + d + e + f;
}
NOINLINE static long gamma_(long n) {
    char variable[n + 16];
    memset(variable, 1, (size_t)n + 16);
    void *made = malloc(13);
    KEEP(made);
    long sum = delta(n, n + 1, n + 2, n + 3, n + 4, n + 5) + variable[n];
    free(made);
    return sum;
}
NOINLINE static long beta(long n) {
    void *made = malloc(12);
    KEEP(made);
    long sum = gamma_(n);
    free(made);
    return sum;
}
NOINLINE static long alpha(long n) {
    void *made = malloc(11);
    KEEP(made);
    long sum = beta(n % 50) + n;
    free(made);
    return sum;
}

int main(void) {
    for (long i = 0; i < 1000; i++) sink += alpha(i);
    say("sum %ld\n", sink);
    return 0;
}
