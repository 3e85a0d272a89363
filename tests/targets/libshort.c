/* A small allocator whose entry points cannot be replaced by a jump. free is two bytes long with other code after
 * it, calloc begins with a call, and malloc has a loop into its own first instructions. The other functions are as
 * compilers make them. With -DPROGRAM it is a program of its own, which prints "ready" and waits to be killed. With
 * -DSIZED, malloc can be replaced, and so can sdallocx, a second function that frees. With -DALIAS, there are je_malloc and
 * je_free as well, which can be replaced. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA ((size_t)1 << 32)
/* Stored before each block: the requested size, the address of the piece that contains the block, and the size class: the
 * piece has 2^kind bytes. */
struct head {
    size_t size;
    char *piece;
    size_t kind;
    size_t unused;
};
static atomic_flag lock = ATOMIC_FLAG_INIT;
static char *next, *end, *freed[33];

static void begin(void) {
    while (atomic_flag_test_and_set(&lock)) {
    }
    if (next) return;
    next = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    end = next + ARENA;
}

static void *take(size_t alignment, size_t size) {
    if (size > ARENA / 8 || alignment > 4096) return errno = ENOMEM, NULL;
    size_t kind = 6;
    while (((size_t)1 << kind) < size + alignment + sizeof(struct head)) kind++;
    begin();
    char *piece = freed[kind];
    if (piece) {
        freed[kind] = *(char **)piece;
    } else if ((size_t)(end - next) >= (size_t)1 << kind) {
        piece = next;
        next += (size_t)1 << kind;
    }
    atomic_flag_clear(&lock);
    if (!piece) return errno = ENOMEM, NULL;
    uintptr_t block = ((uintptr_t)piece + sizeof(struct head) + alignment - 1) & ~(alignment - 1);
    ((struct head *)block)[-1] = (struct head){size, piece, kind, 0};
    return (void *)block;
}

static void give(void *block) {
    if (!block) return;
    struct head head = ((struct head *)block)[-1];
    begin();
    *(char **)head.piece = freed[head.kind];
    freed[head.kind] = head.piece;
    atomic_flag_clear(&lock);
}

__attribute__((visibility("hidden"))) void *short_malloc(size_t size) { return take(16, size); }
__attribute__((visibility("hidden"))) void short_free(void *block) { give(block); }
__attribute__((visibility("hidden"))) void *short_calloc(size_t count, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) return errno = ENOMEM, NULL;
    void *block = take(16, total);
    return block ? memset(block, 0, total) : NULL;
}

#ifdef SIZED
void sdallocx(void *block, size_t size, int flags) {
    (void)size;
    (void)flags;
    give(block);
}
#endif
#ifdef ALIAS
void *je_malloc(size_t size) { return take(16, size); }
void je_free(void *block) { give(block); }
#endif

__asm__(".text\n"
        ".globl malloc, free, calloc\n"
        ".type malloc, @function\n"
        ".type free, @function\n"
        ".type calloc, @function\n"
        "free: jmp 1f\n"
        ".size free, . - free\n"
        "calloc: call 2f\n"
        ".size calloc, . - calloc\n"
        "malloc: xorl %eax, %eax\n"
#ifdef SIZED
        "addl $3, %eax\n"
#else
        "0: incl %eax\n"
        "cmpl $3, %eax\n"
        "jne 0b\n"
#endif
        "jmp short_malloc\n"
        ".size malloc, . - malloc\n"
        "1: jmp short_free\n"
        "2: leaq 8(%rsp), %rsp\n"
        "jmp short_calloc\n");

void *realloc(void *old, size_t size) {
    void *block = take(16, size);
    if (!old || !block) return block;
    size_t before = ((struct head *)old)[-1].size;
    memcpy(block, old, before < size ? before : size);
    give(old);
    return block;
}
void *memalign(size_t alignment, size_t size) { return take(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = take(alignment, size);
    return *block ? 0 : ENOMEM;
}

#ifdef PROGRAM
int main(void) {
    if (write(1, "ready\n", 6) != 6) return 1;
    for (;;) pause();
}
#endif
