/* Passive false sharing, in the manner of cache-scratch (2000): the main thread allocates small objects that lie
 * side by side and gives one to each thread, which frees it, allocates one of the same size, and writes to it. A malloc that
 * gives a thread what another thread freed lets the writes of two CPUs meet in a cache line.
 *
 *   cache_scratch [THREADS] [TURNS] [WRITES] */
#include "common.h"

enum { SIZE = 8 };

struct worker {
  unsigned char *given;
  unsigned long turns;
  unsigned long writes;
  uint64_t sum;
};

static void *work(void *argument) {
  struct worker *worker = argument;
  unsigned long turn, write;
  free(worker->given);
  for (turn = 0; turn < worker->turns; turn++) {
    volatile unsigned char *object = checked(malloc(SIZE));
    for (write = 0; write < worker->writes; write++) {
      object[write % SIZE] = (unsigned char)write;
      worker->sum += object[write % SIZE];
    }
    free((void *)object);
  }
  return NULL;
}

int main(int count, char **words) {
  unsigned long threads = number_of(count, words, 1, 2);
  unsigned long turns = number_of(count, words, 2, 400000);
  unsigned long writes = number_of(count, words, 3, 400);
  struct worker *workers = checked(calloc(threads, sizeof *workers));
  unsigned long at;
  uint64_t sum = 0;
  for (at = 0; at < threads; at++) {
    workers[at].given = checked(malloc(SIZE));
    workers[at].turns = turns;
    workers[at].writes = writes;
  }
  run_threads(threads, work, (char *)workers, sizeof *workers);
  for (at = 0; at < threads; at++) {
    sum += workers[at].sum;
  }
  free(workers);
  printf("cache scratch: %lu\n", (unsigned long)sum);
  return 0;
}
