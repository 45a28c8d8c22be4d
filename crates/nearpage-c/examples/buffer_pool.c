/*
 * A buffer pool of a database: 1024 frames of 8 KiB, interleaved over all nodes, locked while they change, given back
 * when memory gets short.
 *
 * cc buffer_pool.c $(pkg-config --cflags --libs nearpage)
 */
#include <nearpage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES 1024
#define FRAME_ORDER 1 /* 2 pages */

struct pool {
  nearpage_memory *memory;
  void *frames[FRAMES];
};

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nearpage_last_error());
  exit(1);
}

/* Memory is short: gives clean frames back. Any thread may call this. */
static uint64_t give_back(void *context, uint32_t node, uint64_t pages) {
  struct pool *pool = context;
  uint64_t given = 0;
  int i;
  for (i = 0; i < FRAMES && given < pages; i++) {
    void *frame = pool->frames[i];
    if (frame == NULL || nearpage_node_of(pool->memory, frame) != (int)node) continue;
    if (nearpage_page_trylock(pool->memory, frame) != 1) continue;
    pool->frames[i] = NULL;
    nearpage_page_unlock(pool->memory, frame);
    if (nearpage_pages_free(pool->memory, frame, FRAME_ORDER) == 0) given += 2;
  }
  return given;
}

int main(void) {
  static const uint32_t nodes[] = {0, 1};
  nearpage_memory_options options;
  nearpage_policy_options all;
  nearpage_policy *policy;
  nearpage_stats stats;
  struct pool pool;
  unsigned on[2] = {0, 0};
  int i;

  memset(&pool, 0, sizeof pool);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bytes_per_node = 32 << 20;
  options.fake_nodes = 2; /* a machine with one node shows the same */
  if (nearpage_memory_create(&options, &pool.memory) != 0) die("memory");
  if (nearpage_shrinker_add(pool.memory, give_back, &pool) != 0) die("callback");
  if (nearpage_reclaim_start(pool.memory, 1000) != 0) die("reclaim");

  memset(&all, 0, sizeof all);
  all.size = sizeof all;
  all.kind = NEARPAGE_POLICY_INTERLEAVE;
  all.nodes = nodes;
  all.count = 2;
  if (nearpage_policy_create(pool.memory, &all, &policy) != 0) die("policy");

  for (i = 0; i < FRAMES; i++) {
    if (nearpage_pages_alloc_by(pool.memory, policy, FRAME_ORDER, 0, &pool.frames[i]) != 0) die("frame");
    if (nearpage_page_lock(pool.memory, pool.frames[i]) != 0) die("lock");
    memset(pool.frames[i], i, 8192);
    if (nearpage_page_unlock(pool.memory, pool.frames[i]) != 0) die("unlock");
    on[nearpage_node_of(pool.memory, pool.frames[i])]++;
  }
  printf("frames by node: %u %u\n", on[0], on[1]);

  memset(&stats, 0, sizeof stats);
  stats.size = sizeof stats;
  if (nearpage_node_stats(pool.memory, 1, &stats) != 0) die("counters");
  printf("given back when asked: %lu pages\n", (unsigned long)give_back(&pool, 1, 64));
  for (i = 0; i < FRAMES; i++) {
    if (nearpage_pages_free(pool.memory, pool.frames[i], FRAME_ORDER) != 0) die("free");
  }
  nearpage_policy_destroy(policy);
  if (nearpage_memory_destroy(pool.memory) != 0) die("memory's end");
  return on[0] == FRAMES / 2 && on[1] == FRAMES / 2 && stats.managed_pages == 8192 ? 0 : 1;
}
