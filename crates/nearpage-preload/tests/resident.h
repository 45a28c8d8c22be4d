/* What of this process is in memory, in KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long resident(void) {
  char text[128];
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  setvbuf(file, text, _IOFBF, sizeof text);
  if (fscanf(file, "%*s %ld", &pages) != 1) {
    exit(2);
  }
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
