/* A program that has 200 MB in blocks of one size, frees all, makes no call for 1.9 seconds, and tells its resident KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resident.h"

int main(int count, char **words) {
  size_t size = count > 1 ? strtoul(words[1], NULL, 10) : 100;
  size_t blocks = 200000000 / size, at;
  char **all = malloc(blocks * sizeof *all);
  long most;
  for (at = 0; at < blocks; at++) {
    all[at] = malloc(size);
    memset(all[at], 1, size);
  }
  most = resident();
  for (at = 0; at < blocks; at++) {
    free(all[at]);
  }
  free(all);
  usleep(1900000);
  printf("%ld %ld\n", most, resident());
  return 0;
}
