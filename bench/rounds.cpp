// The churn program with one round for each line on stdin, to measure before an attach, during it and after the detach.
// Arguments: depth of the stack, thousands of events per round. Prints the CPU time of each round, in ns.
#define main churn_main
#include "churn.cpp"
#undef main
#include <ctime>
#include <unistd.h>

static long cpu_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main(int argc, char **argv) {
    depth = argc > 1 ? atoi(argv[1]) : 16;
    long events = (argc > 2 ? atol(argv[2]) : 1000) * 1000;
    static Worker worker;
    worker.state = 0x9e3779b97f4a7c15u;
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        worker.left = events;
        long began = cpu_ns();
        work(&worker);
        printf("%ld\n", cpu_ns() - began);
        fflush(stdout);
    }
}
