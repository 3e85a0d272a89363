/* daemons COUNT: executes itself in COUNT children, one after another. Each of them forks and ends at once, as programs do that go to the
 * background. Its child frees blocks that it has inherited. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    void *blocks[50];
    for (int i = 0; i < 50; i++)
        blocks[i] = malloc(100 + i);
    for (int left = count > 1 ? atoi(words[1]) : 0; left > 0; left--) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "daemon", (char *)0);
            _exit(9);
        }
        waitpid(child, NULL, 0);
    }
    if (count > 1 || fork() != 0)
        return 0;
    setsid();
    void *own = malloc(77);
    for (int i = 0; i < 20; i++)
        free(blocks[i]);
    free(own);
    return 0;
}
