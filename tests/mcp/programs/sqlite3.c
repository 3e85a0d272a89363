/* Executes a file of SQL statements. */
#include <stdio.h>
#include <stdlib.h>
#include "sqlite3.h"

int main(int argc, char **argv) {
  static char sql[1 << 20];
  sqlite3 *db;
  FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!file) return 1;
  sql[fread(sql, 1, sizeof sql - 1, file)] = 0;
  fclose(file);
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
  int failed = sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK;
  sqlite3_close(db);
  return failed;
}
