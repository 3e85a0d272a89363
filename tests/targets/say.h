/* Output without an allocation. stdio would malloc its buffer and so change the numbers that are compared. */
#ifndef SAY_H
#define SAY_H
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0 && write(1, line, (size_t)length) < 0)
        _exit(99);
}

/* Uses a pointer, because the compiler may remove a malloc whose result is never used. */
#define KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")
/* A block that is freed at once. The file that uses it includes stdlib.h. */
#define ALLOCATE_AND_FREE(bytes)      \
    do {                              \
        void *made_ = malloc(bytes);  \
        KEEP(made_);                  \
        free(made_);                  \
    } while (0)
#define NOINLINE __attribute__((noinline, noclone))
/* Stands after a call. Without it, -O2 could make that call a tail call, and the frame of the calling function would be missing. */
#define FRAME() __asm__ volatile("" : : : "memory")
#endif
