/* Writes down what a program inherits: its arguments, environment, descriptors, signals, limits, umask, folder and priority.
 *
 * surroundings OUT                   appends these facts to the file OUT and ends with code 9.
 * surroundings OUT exec | execenv    appends them, then executes `surroundings OUT` (with `environ`, or with an environment of its own
 *                                    that has unusual entries).
 * surroundings OUT NEXT ARGS...      appends them, then executes NEXT.
 * surroundings launch KINDS PROGRAM ARGS...   makes unusual surroundings, then executes PROGRAM. KINDS are separated by commas; `launch`
 *                                    below has the list.
 *
 * In each image except that of `launch`: 3 blocks of 4321 bytes, kept. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "say.h"

extern char **environ;
static int out;

static void put(const char *format, ...) {
    static char text[1 << 16];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (write(out, text, (size_t)length) != length) _exit(98);
}

struct kernel_action { uintptr_t handler; unsigned long flags; uintptr_t restorer; uint64_t mask; };

static void signals(void) {
    for (int number = 1; number <= 64; number++) {
        struct kernel_action action = {0};
        syscall(SYS_rt_sigaction, number, NULL, &action, 8);
        const char *what = action.handler == 0 ? "default" : action.handler == 1 ? "ignored" : "handled";
        put("signal %d %s flags %lx mask %lx\n", number, what, action.flags, (unsigned long)action.mask);
    }
    uint64_t mask = 0, pending = 0;
    syscall(SYS_rt_sigprocmask, 0, NULL, &mask, 8);
    syscall(SYS_rt_sigpending, &pending, 8);
    put("blocked %lx pending %lx\n", (unsigned long)mask, (unsigned long)pending);
}

struct entry { uint64_t inode; int64_t offset; unsigned short length; unsigned char kind; char name[]; };

/* Writes a line for each open descriptor into `text`, and one with the lowest free number. Called before this program opens a file. */
static void descriptors(char *text, size_t room) {
    char buffer[4096];
    int numbers[256], count = 0;
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    for (long length; (length = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
        for (long at = 0; at < length; at += ((struct entry *)(buffer + at))->length) {
            int number = atoi(((struct entry *)(buffer + at))->name);
            if (((struct entry *)(buffer + at))->name[0] != '.' && number != folder) numbers[count++] = number;
        }
    close(folder);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        char link[64], target[4096] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", numbers[i]);
        if (readlink(link, target, sizeof target - 1) < 0) continue;
        used += (size_t)snprintf(text + used, room - used, "descriptor %d %s flags %x %x\n", numbers[i], target,
                                 fcntl(numbers[i], F_GETFD), fcntl(numbers[i], F_GETFL));
    }
    used += (size_t)snprintf(text + used, room - used, "first free descriptor %d\n", folder);
}

static void limits(void) {
    for (int which = 0; which < RLIMIT_NLIMITS; which++) {
        struct rlimit limit;
        getrlimit(which, &limit);
        put("limit %d %lx %lx\n", which, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
    mode_t mask = umask(0);
    char folder[4096];
    put("umask %o folder %s nice %d secure %lu\n", mask, getcwd(folder, sizeof folder) ? folder : "?",
        getpriority(PRIO_PROCESS, 0), getauxval(AT_SECURE));
    umask(mask);
}

/* The environment as other processes see it, in /proc/PID/environ. Writes its length and a checksum. Zeros at its
 * end are not counted, because the capture library overwrites its own variables, which come last, with zeros. */
static void kernels_copy(void) {
    static char text[1 << 21];
    int file = open("/proc/self/environ", O_RDONLY);
    size_t length = 0;
    for (long got; (got = read(file, text + length, sizeof text - length)) > 0;) length += (size_t)got;
    close(file);
    while (length > 0 && text[length - 1] == 0) length--;
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) sum = (sum ^ (unsigned char)text[i]) * 1099511628211u;
    put("/proc/self/environ %zu bytes, sum %lx\n", length, (unsigned long)sum);
}

static void write_down(int argc, char **argv, char **envp, const char *place) {
    static char text[1 << 16];
    descriptors(text, sizeof text);
    out = open(place, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    put("%s", text);
    for (int i = 0; i < argc; i++) put("word %s\n", argv[i]);
    put("executed %s\n", (char *)getauxval(AT_EXECFN));
    put("environment of main is %s\n", envp == environ ? "environ" : "another");
    for (char **entry = environ; *entry; entry++) put("entry <%s>\n", *entry);
    signals();
    limits();
    kernels_copy();
    put("--\n");
    close(out);
}

static void for_each_number(const char *list, void (*use)(int)) {
    for (char *end; *list; list = end + (*end == '+')) use((int)strtol(list, &end, 10));
}

static void ignore(int number) {
    struct kernel_action action = {.handler = 1};
    syscall(SYS_rt_sigaction, number, &action, NULL, 8);
}

static void block(int number) {
    uint64_t mask = (uint64_t)1 << (number - 1);
    syscall(SYS_rt_sigprocmask, 0, &mask, NULL, 8);
}

static void close_one(int number) { close(number); }

static int launch(char **argv) {
    static char *list[10100], many[10000][16];
    int count = 0;
    list[count++] = "ZED=last in the alphabet, first in the list";
    for (char *kind = strtok(argv[2], ","); kind; kind = strtok(NULL, ",")) {
        if (!strcmp(kind, "empty")) count = 0;
        else if (!strcmp(kind, "twice")) list[count++] = "B=1", list[count++] = "A=", list[count++] = "B=2", list[count++] = "B=1";
        else if (!strcmp(kind, "bare")) list[count++] = "no_equals_sign", list[count++] = "", list[count++] = "=nameless", list[count++] = "=";
        else if (!strcmp(kind, "many"))
            for (int i = 0; i < 10000; i++) snprintf(many[i], 16, "N%d=%d", (i * 7919) % 10000, i), list[count++] = many[i];
        else if (!strncmp(kind, "set:", 4)) list[count++] = kind + 4;
        else if (!strncmp(kind, "ignore:", 7)) for_each_number(kind + 7, ignore);
        else if (!strncmp(kind, "block:", 6)) for_each_number(kind + 6, block);
        else if (!strncmp(kind, "close:", 6)) for_each_number(kind + 6, close_one);
        else return 97;
    }
    execve(argv[3], argv + 3, list);
    return 96;
}

int main(int argc, char **argv, char **envp) {
    if (argc > 3 && !strcmp(argv[1], "launch")) return launch(argv);
    for (int i = 0; i < 3; i++) KEEP(malloc(4321));
    write_down(argc, argv, envp, argv[1]);
    if (argc < 3) return 9;
    char *next[] = {argv[0], argv[1], NULL};
    char *odd[] = {"Z=1", "bare", "A=2", "LD_PRELOAD=", "Z=1", "HEAPTRACK=not ours", NULL};
    if (!strcmp(argv[2], "exec")) execv(argv[0], next);
    else if (!strcmp(argv[2], "execenv")) execve(argv[0], next, odd);
    else execvp(argv[2], argv + 2);
    return 95;
}
