/* Threads, each bound to a CPU, allocate, free some, and allocate again; another thread follows each on the same CPU. They end,
 * and leave what they have. With the word `moves` each goes on on the next CPU in the middle. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 60000 };

static int moves, cpus[64], cpu_count;

static void bind(int which) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus[which % cpu_count], &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void *work(void *which) {
  static __thread char *all[OBJECTS];
  unsigned at, turn, random = 7;
  bind((long)which);
  for (turn = 0; turn < 3; turn++) {
    for (at = 0; at < OBJECTS; at++) {
      random = random * 1103515245 + 12345;
      if (turn && (random >> 16) % 3) {
        continue;
      }
      free(all[at]);
      /* Some are blocks of pages. */
      size_t size = at % 1000 == 0 ? 100000 : 16 + (random >> 16) % 1500;
      all[at] = malloc(size);
      memset(all[at], 1, size);
    }
    if (moves && turn == 0) {
      bind((long)which + 1);
    }
  }
  return NULL;
}

int main(int count, char **words) {
  cpu_set_t set;
  int at, cpu;
  moves = count > 1;
  sched_getaffinity(0, sizeof set, &set);
  for (cpu = 0; cpu < CPU_SETSIZE && cpu_count < 64; cpu++) {
    if (CPU_ISSET(cpu, &set)) {
      cpus[cpu_count++] = cpu;
    }
  }
  for (at = 0; at < 2; at++) {
    pthread_t threads[8];
    long thread;
    for (thread = 0; thread < 8; thread++) {
      pthread_create(&threads[thread], NULL, work, (void *)thread);
    }
    for (thread = 0; thread < 8; thread++) {
      pthread_join(threads[thread], NULL);
    }
  }
  return cpu_count > 1 ? 0 : 3;
}
