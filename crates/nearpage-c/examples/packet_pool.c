/*
 * A pool of packet buffers, as DPDK's mempool has them: a fixed size, taken and given back in bursts, on the node of the
 * device. What DPDK does with a ring and a cache for each core, the object cache does for each CPU.
 *
 * cc packet_pool.c $(pkg-config --cflags --libs nearpage)
 */
#include <nearpage.h>
#include <stdio.h>
#include <string.h>

#define BURST 32
#define BURSTS 1000
#define BUFFER_BYTES 2176 /* a frame of 2048 bytes and 128 of headroom */

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nearpage_last_error());
  return 1;
}

int main(void) {
  nearpage_memory_options options;
  nearpage_memory *memory;
  nearpage_cache *pool;
  void *burst[BURST];
  size_t got, sent = 0;
  int i, b;

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bytes_per_node = 64 << 20;
  if (nearpage_memory_create(&options, &memory) != 0) return fail("memory");
  if (nearpage_cache_create(memory, "packets", BUFFER_BYTES, 64, &pool) != 0) return fail("pool");

  for (b = 0; b < BURSTS; b++) {
    if (nearpage_cache_alloc_bulk(pool, 0, BURST, burst, &got) != 0) return fail("burst");
    for (i = 0; i < (int)got; i++) memset(burst[i], i, 64);
    sent += got;
    if (nearpage_cache_free_bulk(pool, got, burst) != 0) return fail("free");
  }
  printf("%lu packets\n", (unsigned long)sent);

  /* An address that is no buffer is refused, and changes nothing. */
  if (nearpage_cache_alloc(pool, 0, NEARPAGE_ANY_NODE, burst) != 0) return fail("buffer");
  if (nearpage_cache_free(pool, (char *)burst[0] + 8) == 0) return fail("a free of no buffer");
  if (nearpage_cache_free(pool, burst[0]) != 0) return fail("free");

  if (nearpage_cache_destroy(pool) != 0) return fail("pool's end");
  if (nearpage_memory_destroy(memory) != 0) return fail("memory's end");
  return sent == BURST * BURSTS ? 0 : 1;
}
