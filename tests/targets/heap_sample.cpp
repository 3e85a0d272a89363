// Linked with tcmalloc of gperftools. Writes what its sampler knows of the live blocks to the file that is named:
//   4000 blocks of 64 bytes from `small`, 400 of 4096 bytes from `medium`, 8 of 524288 bytes from `large`
// `freed` allocates 400 blocks of 4096 bytes, which are gone by then. TCMALLOC_SAMPLE_PARAMETER has the rate of the sampler.
#include <gperftools/malloc_extension.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include "say.h"

static void *volatile smalls[4000], *volatile mediums[400], *volatile larges[8];

NOINLINE static void small() {
    for (void *volatile &slot : smalls) slot = malloc(64);
    FRAME();
}

NOINLINE static void medium() {
    for (void *volatile &slot : mediums) slot = malloc(4096);
    FRAME();
}

NOINLINE static void large() {
    for (void *volatile &slot : larges) slot = malloc(524288);
    FRAME();
}

NOINLINE static void freed() {
    for (int i = 0; i < 400; i++) {
        void *volatile made = malloc(4096);
        free(made);
    }
    FRAME();
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    // The library allocates before it has read the variable, and looks at it again after 16 MiB.
    ALLOCATE_AND_FREE(32 << 20);
    freed();
    small();
    medium();
    large();
    std::string sample;
    MallocExtension::instance()->GetHeapSample(&sample);
    FILE *file = fopen(argv[1], "w");
    if (!file || fwrite(sample.data(), 1, sample.size(), file) != sample.size() || fclose(file) != 0) return 1;
    return 0;
}
