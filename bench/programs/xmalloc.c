/* All threads allocate batches and free batches of others, in the manner of malloc-test (2000): a batch
 * is put on a common pile, and a random one is taken off.
 *
 *   xmalloc [THREADS] [BATCHES] */
#include "common.h"

enum { BATCH = 64, PILE = 64 };

struct batch {
  unsigned char *blocks[BATCH];
  size_t sizes[BATCH];
};

static struct batch *pile[PILE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct worker {
  uint64_t random;
  uint64_t bytes;
  unsigned long batches;
};

static struct batch *filled(struct worker *worker) {
  struct batch *batch = checked(malloc(sizeof *batch));
  size_t at;
  for (at = 0; at < BATCH; at++) {
    size_t size = 1 + next_random(&worker->random) % 256;
    batch->sizes[at] = size;
    batch->blocks[at] = checked(malloc(size));
    stamp(batch->blocks[at], size, (unsigned char)at);
    worker->bytes += size;
  }
  return batch;
}

static void empty(struct batch *batch) {
  size_t at;
  for (at = 0; batch != NULL && at < BATCH; at++) {
    look(batch->blocks[at], batch->sizes[at], (unsigned char)at);
    free(batch->blocks[at]);
  }
  free(batch);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  unsigned long turn;
  for (turn = 0; turn < worker->batches; turn++) {
    struct batch *batch = filled(worker);
    size_t at = next_random(&worker->random) % PILE;
    struct batch *other;
    pthread_mutex_lock(&lock);
    other = pile[at];
    pile[at] = batch;
    pthread_mutex_unlock(&lock);
    empty(other);
  }
  return NULL;
}

int main(int count, char **words) {
  unsigned long threads = number_of(count, words, 1, 4);
  unsigned long batches = number_of(count, words, 2, 80000);
  struct worker *workers = checked(calloc(threads, sizeof *workers));
  unsigned long at;
  uint64_t bytes = 0;
  for (at = 0; at < threads; at++) {
    workers[at].random = seed_of(at);
    workers[at].batches = batches;
  }
  run_threads(threads, work, (char *)workers, sizeof *workers);
  for (at = 0; at < PILE; at++) {
    empty(pile[at]);
  }
  for (at = 0; at < threads; at++) {
    bytes += workers[at].bytes;
  }
  free(workers);
  printf("xmalloc: %lu bytes\n", (unsigned long)bytes);
  return 0;
}
