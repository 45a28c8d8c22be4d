/* Hours of churn at constant use, in model time: the clock and the sleeps that the library asks for are this program's, and a
 * step is a tenth of a second. All sizes are there at all times: a step frees objects and allocates the same sizes in other
 * places. Two threads take turns, so that each frees what the other allocated; one of them ends each hour, and another comes.
 * Every ten minutes there is a burst of 64 MB. Before the next one, the program tells its resident KiB.
 *
 * churn HOURS [leak] */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "resident.h"

enum { SLOTS = 20000, STEP_MS = 100, SWAPS = 20, TURN = 100, BURST_STEPS = 6000, BURST = 64000, HOUR_STEPS = 36000 };

static _Atomic long long now_ms = 1000000, sleeper_until;
static _Atomic int is_over;
static long long begin_step, steps, last_step;
static char *objects[SLOTS];
static size_t sizes[SLOTS];
static char *burst[BURST];
static unsigned long long state = 7;
static int leaks;
static sem_t turns[2];

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE) {
    return syscall(SYS_clock_gettime, clock, time);
  }
  time->tv_sec = now_ms / 1000;
  time->tv_nsec = now_ms % 1000 * 1000000;
  return 0;
}

static void moment(void) {
  struct timespec time = {0, 20000};
  syscall(SYS_nanosleep, &time, NULL);
}

/* Only the library's own thread sleeps. */
int nanosleep(const struct timespec *time, struct timespec *rest) {
  sleeper_until = now_ms + time->tv_sec * 1000 + time->tv_nsec / 1000000;
  while (now_ms < sleeper_until && !is_over) {
    moment();
  }
  sleeper_until = 0;
  return 0;
}

static unsigned random_below(unsigned most) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (state >> 33) % most;
}

static char *make(size_t size) {
  size_t at;
  char *object = malloc(size);
  if (!object) {
    exit(2);
  }
  for (at = 0; at < size; at += 4096) {
    object[at] = 1;
  }
  return object;
}

static void step(void) {
  int swap, at;
  for (swap = 0; swap < SWAPS; swap++) {
    unsigned one = random_below(SLOTS), other = random_below(SLOTS);
    size_t size = sizes[one];
    if (one == other) {
      continue;
    }
    free(objects[one]);
    free(objects[other]);
    sizes[one] = sizes[other];
    sizes[other] = size;
    objects[one] = make(sizes[one]);
    objects[other] = make(sizes[other]);
  }
  if (leaks) {
    make(200);
  }
  if (steps % BURST_STEPS == BURST_STEPS - 1) {
    printf("%ld\n", resident());
    for (at = 0; at < BURST; at++) {
      burst[at] = make(200 + random_below(1600));
    }
    for (at = BURST; at-- > 1;) {
      unsigned with = random_below(at);
      char *object = burst[at];
      burst[at] = burst[with];
      burst[with] = object;
    }
    for (at = 0; at < BURST; at++) {
      free(burst[at]);
    }
  }
  steps++;
  now_ms += STEP_MS;
  /* Who should wake by now does, before time goes on. */
  while (sleeper_until && now_ms >= sleeper_until) {
    moment();
  }
}

static void *work(void *which) {
  long own = (long)which;
  long long end = begin_step + HOUR_STEPS;
  while (own == 0 || steps < end) {
    int at;
    sem_wait(&turns[own]);
    for (at = 0; at < TURN && steps < last_step; at++) {
      step();
    }
    sem_post(&turns[1 - own]);
    if (steps >= last_step) {
      break;
    }
  }
  return NULL;
}

int main(int count, char **words) {
  int at;
  pthread_t first, second;
  last_step = (long long)atoi(words[1]) * HOUR_STEPS;
  leaks = count > 2;
  for (at = 0; at < SLOTS; at++) {
    /* Evenly over doublings, from 16 bytes to 16 KiB; some are large, and a few are mappings of their own. */
    size_t size = (16ul << random_below(10)) + random_below(16);
    sizes[at] = at % 2000 == 0 ? 5000000 : at % 200 == 0 ? 40000 + random_below(400000) : size;
    objects[at] = make(sizes[at]);
  }
  sem_init(&turns[0], 0, 1);
  sem_init(&turns[1], 0, 0);
  pthread_create(&first, NULL, work, (void *)0);
  while (steps < last_step) {
    begin_step = steps;
    pthread_create(&second, NULL, work, (void *)1);
    pthread_join(second, NULL);
  }
  pthread_join(first, NULL);
  is_over = 1;
  return 0;
}
