/* A server in the manner of larson (1998): each thread replaces random blocks of its table, then hands the
 * table to a new thread and ends, so that most blocks are freed by another thread than the one that allocated them.
 *
 *   larson [THREADS] [GENERATIONS] [REPLACEMENTS] */
#include "common.h"

enum { SLOTS = 1000, LEAST = 10, MOST = 500 };

struct table {
  unsigned char *blocks[SLOTS];
  size_t sizes[SLOTS];
  uint64_t random;
  uint64_t bytes;
  unsigned long replacements;
};

static size_t size_of(struct table *table) { return LEAST + next_random(&table->random) % (MOST - LEAST); }

static void *replace(void *argument) {
  struct table *table = argument;
  unsigned long turn;
  for (turn = 0; turn < table->replacements; turn++) {
    size_t at = next_random(&table->random) % SLOTS;
    if (table->blocks[at] != NULL) {
      look(table->blocks[at], table->sizes[at], (unsigned char)at);
      free(table->blocks[at]);
    }
    table->sizes[at] = size_of(table);
    table->blocks[at] = checked(malloc(table->sizes[at]));
    stamp(table->blocks[at], table->sizes[at], (unsigned char)at);
    table->bytes += table->sizes[at];
  }
  return NULL;
}

int main(int count, char **words) {
  unsigned long threads = number_of(count, words, 1, 4);
  unsigned long generations = number_of(count, words, 2, 100);
  unsigned long replacements = number_of(count, words, 3, 50000);
  struct table *tables = checked(calloc(threads, sizeof *tables));
  unsigned long at, generation;
  uint64_t bytes = 0;
  for (at = 0; at < threads; at++) {
    tables[at].random = seed_of(at);
    tables[at].replacements = replacements;
  }
  for (generation = 0; generation < generations; generation++) {
    run_threads(threads, replace, (char *)tables, sizeof *tables);
  }
  for (at = 0; at < threads; at++) {
    size_t slot;
    for (slot = 0; slot < SLOTS; slot++) {
      free(tables[at].blocks[slot]);
    }
    bytes += tables[at].bytes;
  }
  free(tables);
  printf("larson: %lu bytes\n", (unsigned long)bytes);
  return 0;
}
