/* Contains leak suppressions in LeakSanitizer's form, whose text must be in the trace. Leaks 1 byte in `known`, 2 in `new_`.
 * Prints "suppressed done". */
#include <stdlib.h>
#include "say.h"
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"), used)) const char *__lsan_default_suppressions(void) {
    return "leak:known\nleak:libfoo.so\n";
}
NOINLINE static void known(void) { KEEP(malloc(1)); }
NOINLINE static void new_(void) { KEEP(malloc(2)); }
int main(void) {
    known();
    new_();
    say("suppressed done\n");
    return 0;
}
