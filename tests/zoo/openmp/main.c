/* Parallel loops and tasks of OpenMP on four threads, which spin while they wait: 1000 * 10 blocks. */
#include <omp.h>
#include "../blocks/zoo.h"

int main(void) {
    long sum = 0;
    omp_set_num_threads(4);
#pragma omp parallel
    {
    }
    zoo_ready();
#pragma omp parallel for reduction(+ : sum) schedule(dynamic)
    for (int i = 0; i < 500; i++)
        sum += zoo_blocks(10);
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < 500; i++)
#pragma omp task
    {
        long more = zoo_blocks(10);
#pragma omp atomic
        sum += more;
    }
    printf("%ld\n", sum);
    return 0;
}
