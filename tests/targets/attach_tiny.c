/* A program for another architecture (-m32), without any library. It waits to be killed. With -DENDS it ends at once, with 0. */
void _start(void) {
#ifdef ENDS
    __asm__ volatile("int $0x80" : : "a"(1), "b"(0) : "memory"); /* exit */
#endif
    for (;;) __asm__ volatile("int $0x80" : : "a"(29) : "memory"); /* pause */
}
