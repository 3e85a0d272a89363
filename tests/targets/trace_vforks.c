/* Without arguments: starts /bin/true 203 times by vfork and execve, each time with an environment
 * that has only one variable. Prints "N pages more": how much its address space has grown during the last 200.
 * With the arguments "exec PROGRAM ARGS...": forks a child, which executes PROGRAM. Exits with the
 * child's code, or 99 if a signal killed it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long size_in_pages(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) _exit(98);
    fclose(file);
    return pages;
}

static int end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static int start(void) {
    char *const words[] = {"true", NULL};
    char *const list[] = {"MINE=1", NULL};
    pid_t child = vfork();
    if (child == 0) {
        execve("/bin/true", words, list);
        _exit(97);
    }
    return end_of(child);
}

int main(int count, char **words) {
    if (count > 2 && strcmp(words[1], "exec") == 0) {
        pid_t child = fork();
        if (child == 0) {
            execv(words[2], words + 2);
            _exit(97);
        }
        return end_of(child);
    }
    /* The first children may create what all later ones use. */
    for (int i = 0; i < 3; i++)
        if (start()) return 1;
    long before = size_in_pages();
    for (int i = 0; i < 200; i++)
        if (start()) return 1;
    printf("%ld pages more\n", size_in_pages() - before);
    return 0;
}
