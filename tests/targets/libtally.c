/* Counts the calls of libc's allocation functions in every process of a tree, as an oracle that shares no code with heaptrack. It is
 * preloaded. TALLY_FILE names a file that all processes map. Each program in each process has a row in it, which is right at any
 * moment, so it does not matter how the process ends. A realloc of a block counts as a free and an allocation. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { ROWS = 8191 };

struct row {
    atomic_long pid, allocations, bytes, frees;
};

struct table {
    atomic_long used;
    long unused[3];
    struct row rows[ROWS];
};

/* Before libc knows the environment, calls are counted here. */
static struct row early;
static struct row *own = &early;
static struct table *table;

static void take_row(void) {
    long at = table->used++;
    if (at < ROWS) {
        own = &table->rows[at];
        own->pid = getpid();
    }
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("TALLY_FILE");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED)
        return;
    table = map;
    take_row();
    own->allocations += early.allocations;
    own->bytes += early.bytes;
    own->frees += early.frees;
    pthread_atfork(NULL, NULL, take_row);
}

static void *made(void *block, size_t size) {
    if (block) {
        own->allocations++;
        own->bytes += size;
    }
    return block;
}

void *malloc(size_t size) { return made(__libc_malloc(size), size); }
void *calloc(size_t count, size_t size) { return made(__libc_calloc(count, size), count * size); }
void *memalign(size_t align, size_t size) { return made(__libc_memalign(align, size), size); }
void *aligned_alloc(size_t align, size_t size) { return made(__libc_memalign(align, size), size); }

int posix_memalign(void **out, size_t align, size_t size) {
    int before = errno;
    void *block = made(__libc_memalign(align, size), size);
    errno = before;
    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}

void *realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, size);
    if (old && (block || size == 0))
        own->frees++;
    return made(block, size);
}

void free(void *block) {
    if (block)
        own->frees++;
    __libc_free(block);
}
