/* Active false sharing, in the manner of cache-thrash (2000): threads allocate, write and free at the same time. A
 * malloc that cuts a cache line into objects for two threads lets their writes meet.
 *
 *   cache_thrash [THREADS] [TURNS] [WRITES] */
#include "common.h"

enum { SIZE = 8, HELD = 16 };

struct worker {
  unsigned long turns;
  unsigned long writes;
  uint64_t sum;
};

static void *work(void *argument) {
  struct worker *worker = argument;
  unsigned long turn, write;
  uint64_t sum = 0;
  for (turn = 0; turn < worker->turns; turn++) {
    volatile unsigned char *objects[HELD];
    size_t at;
    for (at = 0; at < HELD; at++) {
      objects[at] = checked(malloc(SIZE));
    }
    for (write = 0; write < worker->writes; write++) {
      volatile unsigned char *object = objects[write % HELD];
      object[write % SIZE] = (unsigned char)write;
      sum += object[write % SIZE];
    }
    for (at = 0; at < HELD; at++) {
      free((void *)objects[at]);
    }
  }
  worker->sum = sum;
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
    workers[at].turns = turns;
    workers[at].writes = writes;
  }
  run_threads(threads, work, (char *)workers, sizeof *workers);
  for (at = 0; at < threads; at++) {
    sum += workers[at].sum;
  }
  free(workers);
  printf("cache thrash: %lu\n", (unsigned long)sum);
  return 0;
}
