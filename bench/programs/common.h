/* What the six programs share: one seed, a checked malloc, a sum that no malloc may change. */
#ifndef COMMON_H
#define COMMON_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* xorshift64*: the same numbers on each machine. */
static inline uint64_t next_random(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * UINT64_C(2685821657736338717);
}

static inline uint64_t seed_of(uint64_t number) {
  return (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static inline void *checked(void *block) {
  if (block == NULL) {
    fail("out of memory");
  }
  return block;
}

/* Both ends of a block hold what it was stamped with. */
static inline void stamp(unsigned char *block, size_t size, unsigned char with) {
  block[0] = with;
  block[size - 1] = with;
}

static inline void look(const unsigned char *block, size_t size, unsigned char with) {
  if (block[0] != with || block[size - 1] != with) {
    fail("a block has lost its bytes");
  }
}

static inline unsigned long number_of(int count, char **words, int at, unsigned long usual) {
  return at < count ? strtoul(words[at], NULL, 10) : usual;
}

static inline void run_threads(unsigned long count, void *(*body)(void *), char *arguments, size_t step) {
  pthread_t *threads = checked(malloc(count * sizeof *threads));
  unsigned long at;
  for (at = 0; at < count; at++) {
    if (pthread_create(&threads[at], NULL, body, arguments + at * step) != 0) {
      fail("no thread");
    }
  }
  for (at = 0; at < count; at++) {
    pthread_join(threads[at], NULL);
  }
  free(threads);
}

#endif
