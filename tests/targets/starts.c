/* Starts itself in every way that libc has to execute a program. Each started program keeps one block of 4321 bytes and
 * prints its number, its environment, and how many descriptors it has. Some get an environment of their own, with one entry.
 * Prints "done" at the end. With an argument it first waits for a byte on stdin. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <stdio.h>
#include <unistd.h>
#include "say.h"

extern char **environ;
static const char *self;

static int child(const char *number) {
    KEEP(malloc(4321));
    int descriptors = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) descriptors++;
    printf("program %s, %d descriptors\n", number, descriptors);
    for (char **entry = environ; *entry; entry++) printf("  %s\n", *entry);
    fflush(stdout);
    return 0;
}

static void await(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) _exit(95);
}

/* Executes the program in a forked child, or in one of vfork. */
static void execute(int number, int by_vfork) {
    char text[12], only[24];
    snprintf(text, sizeof text, "%d", number);
    snprintf(only, sizeof only, "ONLY=%d", number);
    char *words[] = {(char *)self, "child", text, NULL}, *list[] = {only, NULL};
    pid_t pid = by_vfork ? vfork() : fork();
    if (pid == 0) {
        switch (number) {
            case 0: execve(self, words, list); break;
            case 1: execv(self, words); break;
            case 2: execvp(self, words); break;
            case 3: execvpe(self, words, list); break;
            case 4: execl(self, self, "child", text, NULL); break;
            case 5: execlp(self, self, "child", text, NULL); break;
            case 6: execle(self, self, "child", text, NULL, list); break;
            case 7: fexecve(open(self, O_RDONLY | O_CLOEXEC), words, list); break;
            default: execve(self, words, environ); break;
        }
        _exit(94);
    }
    await(pid);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 2) return child(argv[2]);
    char byte;
    if (argc > 1 && read(0, &byte, 1) != 1) return 3;
    char line[4096], *words[] = {argv[0], "child", "9", NULL}, *list[] = {"ONLY=x", NULL};
    setbuf(stdout, NULL);
    for (int number = 0; number < 8; number++) execute(number, 0);
    execute(8, 1);
    pid_t pid;
    if (posix_spawn(&pid, self, NULL, NULL, words, list) != 0) return 1;
    await(pid);
    words[2] = "10";
    if (posix_spawnp(&pid, self, NULL, NULL, words, environ) != 0) return 1;
    await(pid);
    snprintf(line, sizeof line, "'%s' child 11", self);
    if (system(line) != 0) return 1;
    snprintf(line, sizeof line, "'%s' child 12", self);
    FILE *output = popen(line, "r");
    while (output && fgets(line, sizeof line, output)) fputs(line, stdout);
    if (!output || pclose(output) != 0) return 1;
    say("done\n");
    return 0;
}
