/* Pipelines: half of the threads allocate messages, the other half read and free them. No thread does both, so each free is
 * one of another thread's.
 *
 *   producer_consumer [PAIRS] [MESSAGES] */
#include "common.h"

enum { QUEUE = 256 };

struct message {
  size_t size;
  unsigned char bytes[1];
};

struct pipe {
  struct message *queue[QUEUE];
  unsigned long put, taken;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t random;
  uint64_t bytes;
  unsigned long messages;
};

struct end {
  struct pipe *pipe;
  int consumes;
};

static size_t size_for(struct pipe *pipe) {
  uint64_t random = next_random(&pipe->random);
  /* Mostly headers, now and then a body. */
  return random % 16 == 0 ? 1024 + (random >> 8) % 15000 : 16 + (random >> 8) % 300;
}

static void produce(struct pipe *pipe) {
  unsigned long turn;
  for (turn = 0; turn < pipe->messages; turn++) {
    size_t size = size_for(pipe);
    struct message *message = checked(malloc(sizeof *message + size));
    message->size = size;
    stamp(message->bytes, size, (unsigned char)turn);
    pthread_mutex_lock(&pipe->lock);
    while (pipe->put - pipe->taken == QUEUE) {
      pthread_cond_wait(&pipe->changed, &pipe->lock);
    }
    pipe->queue[pipe->put++ % QUEUE] = message;
    pthread_cond_signal(&pipe->changed);
    pthread_mutex_unlock(&pipe->lock);
  }
}

static void consume(struct pipe *pipe) {
  unsigned long turn = 0;
  while (turn < pipe->messages) {
    struct message *batch[QUEUE];
    size_t count = 0, at;
    pthread_mutex_lock(&pipe->lock);
    while (pipe->put == pipe->taken) {
      pthread_cond_wait(&pipe->changed, &pipe->lock);
    }
    while (pipe->taken < pipe->put) {
      batch[count++] = pipe->queue[pipe->taken++ % QUEUE];
    }
    pthread_cond_signal(&pipe->changed);
    pthread_mutex_unlock(&pipe->lock);
    for (at = 0; at < count; at++) {
      look(batch[at]->bytes, batch[at]->size, (unsigned char)turn);
      pipe->bytes += batch[at]->size;
      free(batch[at]);
      turn++;
    }
  }
}

static void *work(void *argument) {
  struct end *end = argument;
  if (end->consumes) {
    consume(end->pipe);
  } else {
    produce(end->pipe);
  }
  return NULL;
}

int main(int count, char **words) {
  unsigned long pairs = number_of(count, words, 1, 2);
  unsigned long messages = number_of(count, words, 2, 1000000);
  struct pipe *pipes = checked(calloc(pairs, sizeof *pipes));
  struct end *ends = checked(calloc(2 * pairs, sizeof *ends));
  unsigned long at;
  uint64_t bytes = 0;
  for (at = 0; at < 2 * pairs; at++) {
    struct pipe *pipe = &pipes[at / 2];
    ends[at].pipe = pipe;
    ends[at].consumes = at % 2 == 1;
    if (at % 2 == 0) {
      pthread_mutex_init(&pipe->lock, NULL);
      pthread_cond_init(&pipe->changed, NULL);
      pipe->random = seed_of(at);
      pipe->messages = messages;
    }
  }
  run_threads(2 * pairs, work, (char *)ends, sizeof *ends);
  for (at = 0; at < pairs; at++) {
    bytes += pipes[at].bytes;
  }
  free(ends);
  free(pipes);
  printf("producer and consumer: %lu bytes\n", (unsigned long)bytes);
  return 0;
}
