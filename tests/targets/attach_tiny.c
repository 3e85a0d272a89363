/* A program for another architecture (-m32), without any library. It waits to be killed. */
void _start(void) {
    for (;;) __asm__ volatile("int $0x80" : : "a"(29) : "memory"); /* pause */
}
