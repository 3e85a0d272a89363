/* Prints its environment, to which the constructor of libearly_setenv.so has added SET_EARLY=yes. */
#include <stdio.h>

extern char **environ;
int early(void);

int main(void) {
    if (!early()) return 1;
    for (char **entry = environ; *entry; entry++) puts(*entry);
    return 0;
}
