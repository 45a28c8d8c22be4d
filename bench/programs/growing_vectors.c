/* Vectors that double by realloc: many small ones, and a few that become larger than any class. Each keeps its numbers.
 *
 *   growing_vectors [THREADS] [ROUNDS] [LARGEST] */
#include "common.h"

enum { VECTORS = 2000 };

struct worker {
  uint64_t random;
  uint64_t sum;
  unsigned long rounds;
  unsigned long largest;
};

struct vector {
  uint64_t *numbers;
  size_t length, room;
};

static void push(struct vector *vector, uint64_t number) {
  if (vector->length == vector->room) {
    vector->room = vector->room == 0 ? 4 : vector->room * 2;
    vector->numbers = checked(realloc(vector->numbers, vector->room * sizeof *vector->numbers));
  }
  vector->numbers[vector->length++] = number;
}

static uint64_t drain(struct vector *vector) {
  uint64_t sum = 0;
  size_t at;
  for (at = 0; at < vector->length; at++) {
    sum += vector->numbers[at] ^ at;
  }
  free(vector->numbers);
  memset(vector, 0, sizeof *vector);
  return sum;
}

static void *work(void *argument) {
  struct worker *worker = argument;
  struct vector *vectors = checked(calloc(VECTORS, sizeof *vectors));
  struct vector large = {NULL, 0, 0};
  unsigned long round, at;
  for (round = 0; round < worker->rounds; round++) {
    for (at = 0; at < 100 * VECTORS; at++) {
      uint64_t random = next_random(&worker->random);
      struct vector *vector = &vectors[random % VECTORS];
      if (vector->length > 400 + (random >> 32) % 4000) {
        worker->sum += drain(vector);
      }
      push(vector, random);
    }
    for (at = 0; at < worker->largest; at++) {
      push(&large, at * round);
    }
    worker->sum += drain(&large);
  }
  for (at = 0; at < VECTORS; at++) {
    worker->sum += drain(&vectors[at]);
  }
  free(vectors);
  return NULL;
}

int main(int count, char **words) {
  unsigned long threads = number_of(count, words, 1, 2);
  unsigned long rounds = number_of(count, words, 2, 30);
  unsigned long largest = number_of(count, words, 3, 2000000);
  struct worker *workers = checked(calloc(threads, sizeof *workers));
  unsigned long at;
  uint64_t sum = 0;
  for (at = 0; at < threads; at++) {
    workers[at].random = seed_of(at);
    workers[at].rounds = rounds;
    workers[at].largest = largest;
  }
  run_threads(threads, work, (char *)workers, sizeof *workers);
  for (at = 0; at < threads; at++) {
    sum += workers[at].sum;
  }
  free(workers);
  printf("growing vectors: %lu\n", (unsigned long)sum);
  return 0;
}
