/* Packs the lines of stdin into many small files, as a logger that rotates its files does. */
#include <stdio.h>
#include "zlib.h"

int main(int argc, char **argv) {
  char line[256], name[1024];
  gzFile out = NULL;
  int count = 0;
  if (argc < 2) return 1;
  while (fgets(line, sizeof line, stdin)) {
    if (count++ % 100 == 0) {
      if (out) gzclose(out);
      snprintf(name, sizeof name, "%s.%d.gz", argv[1], count / 100 % 4);
      out = gzopen(name, "wb1");
      if (!out) return 1;
    }
    gzputs(out, line);
  }
  return out && gzclose(out) != Z_OK;
}
