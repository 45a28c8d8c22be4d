/* Loads of programs that live long: slots whose objects are replaced at random, at constant use. The program tells its resident
 * bytes to those that it asked for, in thousandths: at the end, and the most since half of the replacements; then in MiB what lives,
 * what is resident, and what is after malloc_trim(0).
 *
 * loads LOAD SLOTS REPLACEMENTS [SEED]
 *
 * LOAD is mixed (98 % of 16 B to 32 KiB, 2 % to 3.3 MiB), threads (the same by four threads that free each other's), middle (33 to
 * 600 KiB), cache (2 KB to 2 MB) or gone (mixed, all freed at the end: tells what is resident two seconds after). */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resident.h"

enum { PAGE = 4096, SAMPLES = 20, THREADS = 4 };

static const char *load;
static long slots, replacements, before;
static unsigned long long seed;
static _Atomic(char *) *objects;
static atomic_long live;
static double most, last;

static unsigned long long step(unsigned long long *state) {
  *state += 0x9e3779b97f4a7c15ull;
  unsigned long long mixed = *state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  return mixed ^ (mixed >> 31);
}

static double between(unsigned long long *state, double least, double greatest) {
  return least * pow(greatest / least, (step(state) >> 11) * 0x1p-53);
}

static size_t size_of(unsigned long long *state) {
  if (*load == 'm' && load[2] == 'd') {
    return 33 * 1024 + step(state) % (567 * 1024);
  }
  if (*load == 'c') {
    return between(state, 2000, 2e6);
  }
  return step(state) % 50 == 0 ? between(state, 32768, 3.3 * 1048576) : between(state, 16, 32768);
}

/* An object has its size in front. */
static char *make(unsigned long long *state) {
  size_t size = size_of(state), at;
  char *object = malloc(size);
  if (object == NULL) {
    exit(3);
  }
  for (at = 0; at < size; at += PAGE) {
    object[at] = 1;
  }
  *(size_t *)object = size;
  atomic_fetch_add(&live, size);
  return object;
}

static void drop(char *object) {
  atomic_fetch_sub(&live, *(size_t *)object);
  free(object);
}

static double ratio(void) {
  return (resident() - before) * 1024.0 / atomic_load(&live);
}

static void *works(void *word) {
  long thread = (long)word, threads = *load == 't' ? THREADS : 1;
  long turns = replacements / threads, turn;
  unsigned long long state = seed + thread;
  for (turn = 0; turn < turns; turn++) {
    drop(atomic_exchange(&objects[step(&state) % slots], make(&state)));
    if (thread == 0 && turn % (turns / SAMPLES) == 0) {
      last = ratio();
      most = turn > turns / 2 && last > most ? last : most;
    }
  }
  return NULL;
}

int main(int count, char **words) {
  pthread_t threads[THREADS];
  unsigned long long state;
  long at, mib, full;
  if (count < 4) {
    return 2;
  }
  load = words[1];
  slots = atol(words[2]);
  replacements = atol(words[3]);
  seed = count > 4 ? strtoull(words[4], NULL, 10) : 51;
  objects = calloc(slots, sizeof *objects);
  memset(objects, 1, slots * sizeof *objects);
  before = resident();
  state = seed + THREADS;
  for (at = 0; at < slots; at++) {
    objects[at] = make(&state);
  }
  for (at = 1; at < THREADS && *load == 't'; at++) {
    pthread_create(&threads[at], NULL, works, (void *)at);
  }
  works(NULL);
  for (at = 1; at < THREADS && *load == 't'; at++) {
    pthread_join(threads[at], NULL);
  }
  last = ratio();
  most = last > most ? last : most;
  mib = live >> 20;
  full = (resident() - before) / 1024;
  if (*load == 'g') {
    for (at = 0; at < slots; at++) {
      drop(objects[at]);
    }
    usleep(2000000);
  } else {
    malloc_trim(0);
  }
  printf("%.0f %.0f %ld %ld %ld\n", last * 1000, most * 1000, mib, full, (resident() - before) / 1024);
  return 0;
}
