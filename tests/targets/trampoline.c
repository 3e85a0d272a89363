/* Machine code in an anonymous mapping, without a frame pointer and without CFI, that calls a function, as CPython generates for
 * `-X perf`. Only the code after the call shows where its caller's frame is. main -> before -> code -> inside -> malloc,
 * 10 times each, all left:
 *   890  sub rsp, 8; call; add rsp, 8; ret
 *   891  this code with 24 instead of 8, at the same address. The return address is the same, so 890 and 891 have one stack.
 *   892  push rbx; sub rsp, 4096 (imm32); call; add rsp, 4096; pop rbx; ret
 *   893  push rbp; set rbp to an address that is no frame; call; pop rbp; ret
 * Stack of each: inside, code (no module), before, main. Built without frame pointers. Prints "trampoline done". */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "say.h"

static uint32_t wanted;

__attribute__((noinline, noclone)) static void *inside(void) {
    void *made = malloc(wanted);
    FRAME();
    return made;
}

static uint8_t *call(uint8_t *at) {
    uint64_t function = (uint64_t)(uintptr_t)inside;
    *at++ = 0x48, *at++ = 0xb8, memcpy(at, &function, 8), at += 8; /* mov rax, inside */
    *at++ = 0xff, *at++ = 0xd0;                                    /* call rax */
    return at;
}

static void small(uint8_t *at, uint8_t bytes) {
    *at++ = 0x48, *at++ = 0x83, *at++ = 0xec, *at++ = bytes; /* sub rsp, bytes */
    at = call(at);
    *at++ = 0x48, *at++ = 0x83, *at++ = 0xc4, *at++ = bytes; /* add rsp, bytes */
    *at++ = 0xc3;                                            /* ret */
}

static void large(uint8_t *at) {
    uint32_t bytes = 4096;
    *at++ = 0x53;                                                               /* push rbx */
    *at++ = 0x48, *at++ = 0x81, *at++ = 0xec, memcpy(at, &bytes, 4), at += 4; /* sub rsp, 4096 */
    at = call(at);
    *at++ = 0x48, *at++ = 0x81, *at++ = 0xc4, memcpy(at, &bytes, 4), at += 4; /* add rsp, 4096 */
    *at++ = 0x5b, *at++ = 0xc3;                                                 /* pop rbx; ret */
}

static void saved(uint8_t *at) {
    *at++ = 0x55;                             /* push rbp */
    *at++ = 0x48, *at++ = 0x8d, *at++ = 0x2c, *at++ = 0x24; /* lea rbp, [rsp] */
    *at++ = 0x48, *at++ = 0x83, *at++ = 0xc5, *at++ = 0x40; /* add rbp, 64: no frame */
    at = call(at);
    *at++ = 0x5d, *at++ = 0xc3; /* pop rbp; ret */
}

__attribute__((noinline, noclone)) static void *before(void *(*code)(void)) {
    void *made = code();
    FRAME();
    return made;
}

int main(void) {
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    void *(*code)(void);
    memcpy(&code, &page, sizeof code);
    for (int round = 0; round < 40; round++) {
        /* The variants take turns, so what the walk has learned about one variant must not be used for the next. */
        switch (round % 4) {
        case 0: small(page, 8); break;
        case 1: small(page, 24); break;
        case 2: large(page); break;
        default: saved(page); break;
        }
        wanted = 890 + (uint32_t)(round % 4);
        KEEP(before(code));
    }
    say("trampoline done\n");
    return 0;
}
