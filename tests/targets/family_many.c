// Many processes at once. Usage: family_many COUNT.
//
// Starts COUNT children. Those with an even number execute this program, the others only fork. Each child makes 10 blocks of 1000 bytes and
// frees them, and makes one of 10,000 bytes plus its number, which it keeps. The first process holds a block of 5000 bytes. When all children
// have their blocks, the first process lets them end. At last it prints the pids of its children, in the order of their numbers.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "say.h"

static int ready[2], go[2];

static void child(long number) {
    for (int i = 0; i < 10; i++) {
        void *volatile block = malloc(1000);
        free(block);
    }
    void *volatile kept = malloc(10000 + (size_t)number);
    char byte = 0;
    // The descriptors 3 and 4 are the same in a program that was executed.
    if (!kept || write(3, &byte, 1) != 1 || read(4, &byte, 1) != 0) _exit(1);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "child") == 0) child(atol(argv[2]));
    if (argc != 2) return 2;
    long count = atol(argv[1]);
    static int pids[2000];
    if (count > 2000 || pipe(ready) || pipe(go)) return 2;
    // As many descriptors as needed, above the ones that the children use.
    int told = dup2(ready[0], 10), answer = dup2(ready[1], 11), wait_for = dup2(go[0], 12), let_go = dup2(go[1], 13);
    close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
    void *volatile own = malloc(5000);
    for (long number = 0; number < count; number++) {
        int pid = pids[number] = fork();
        if (pid < 0) return 3;
        if (pid > 0) continue;
        dup2(answer, 3), dup2(wait_for, 4);
        close(told), close(answer), close(wait_for), close(let_go);
        if (number % 2) child(number);
        char text[20];
        snprintf(text, sizeof text, "%ld", number);
        execl("/proc/self/exe", "family_many", "child", text, (char *)0);
        _exit(4);
    }
    close(answer), close(wait_for);
    char bytes[1];
    for (long number = 0; number < count; number++)
        if (read(told, bytes, 1) != 1) return 5;
    close(let_go);
    int all = 0;
    for (int status; wait(&status) > 0;) all += status == 0;
    for (long number = 0; number < count; number++) say("%d\n", pids[number]);
    return all == count && own ? 0 : 6;
}
