/* Machine code in an anonymous mapping, with a frame pointer, that calls malloc. The frame has no module and no CFI,
 * so the walk follows rbp. `before` -> code -> malloc(888), 10 times, all left. Then the code is overwritten by a
 * variant with a longer prologue, which requests 889, 10 times, all left. Stack of each: code (no module), before, main.
 * Prints "jit done". */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "say.h"

static size_t emit(uint8_t *at, uint64_t function, uint32_t size, int padding) {
    uint8_t *start = at;
    *at++ = 0x55;                                            /* push rbp */
    *at++ = 0x48, *at++ = 0x89, *at++ = 0xe5;                /* mov rbp, rsp */
    for (int i = 0; i < padding; i++) *at++ = 0x90;          /* nop */
    *at++ = 0x48, *at++ = 0x83, *at++ = 0xec, *at++ = 0x20;  /* sub rsp, 32 */
    *at++ = 0xbf, memcpy(at, &size, 4), at += 4;             /* mov edi, size */
    *at++ = 0x48, *at++ = 0xb8, memcpy(at, &function, 8), at += 8; /* mov rax, malloc */
    *at++ = 0xff, *at++ = 0xd0;                              /* call rax */
    *at++ = 0xc9, *at++ = 0xc3;                              /* leave; ret */
    return (size_t)(at - start);
}

__attribute__((noinline, noclone, optimize("no-omit-frame-pointer"))) static void *before(void *(*code)(void)) {
    void *made = code();
    FRAME();
    return made;
}

__attribute__((optimize("no-omit-frame-pointer"))) int main(void) {
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    void *(*code)(void);
    memcpy(&code, &page, sizeof code);
    emit(page, (uint64_t)(uintptr_t)malloc, 888, 0);
    for (int i = 0; i < 10; i++) KEEP(before(code));
    emit(page, (uint64_t)(uintptr_t)malloc, 889, 40);
    for (int i = 0; i < 10; i++) KEEP(before(code));
    say("jit done\n");
    return 0;
}
