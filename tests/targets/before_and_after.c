/* Allocations outside main. By size, each once, at a site of its own:
 *   101 .preinit_array (before every constructor), 102 constructor(101), 103 main, 104 atexit handler, 105 destructor,
 *   106 on_exit handler. Freed: 102 by the atexit handler, 103 by the destructor. Left: 101, 104, 105, 106 = 416 bytes.
 * Prints "main done" and "destructor done". */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include "say.h"

static void *from_constructor, *from_main;

static void preinit(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    KEEP(malloc(101));
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor(101))) static void constructor(void) { from_constructor = malloc(102); }
static void at_exit(void) {
    KEEP(malloc(104));
    free(from_constructor);
}
static void on_exit_handler(int status, void *argument) {
    (void)status, (void)argument;
    KEEP(malloc(106));
}
__attribute__((destructor(101))) static void destructor(void) {
    KEEP(malloc(105));
    free(from_main);
    say("destructor done\n");
}

int main(void) {
    atexit(at_exit);
    on_exit(on_exit_handler, NULL);
    from_main = malloc(103);
    KEEP(from_main);
    say("main done\n");
    return 0;
}
