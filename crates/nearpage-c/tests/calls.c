/* What C programs may do wrong, and what they are told; threads, forks, and a library that is opened and closed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <nearpage.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sys/un.h>
#include <sys/socket.h>

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, nearpage_last_error()); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

static nearpage_memory *memory;

static void wrong_arguments(void) {
  size_t got = 7;
  nearpage_memory_options options;
  struct {
    nearpage_memory_options known;
    uint64_t unknown;
  } later;
  nearpage_memory *none = NULL;
  nearpage_cache *cache, *again;
  nearpage_stats stats;
  void *page, *object;
  char small[8], large[1 << 16];
  uint64_t bytes;
  nearpage_policy_options by;
  nearpage_policy *policy;
  uint32_t node = 0;
  uint8_t weight = 0;

  EXPECT(nearpage_memory_create(NULL, NULL) == -EINVAL);
  memset(&options, 0, sizeof options);
  EXPECT(nearpage_memory_create(&options, &none) == -EINVAL);
  EXPECT(strstr(nearpage_last_error(), "sizeof(nearpage_memory_options)") != NULL);
  options.size = sizeof options;
  options.bind = 9;
  EXPECT(nearpage_memory_create(&options, &none) == -EINVAL && none == NULL);
  options.bind = 0;
  options.bytes_per_node = 1;
  EXPECT(nearpage_memory_create(&options, &none) == -EINVAL);
  EXPECT(strstr(nearpage_last_error(), "bytes_per_node: 1") != NULL);
  /* A structure of a later header: what this version does not know must be 0. */
  memset(&later, 0, sizeof later);
  later.known.size = sizeof later;
  later.known.bytes_per_node = 16 << 20;
  EXPECT(nearpage_memory_create(&later.known, &none) == 0 && nearpage_memory_destroy(none) == 0);
  later.unknown = 1;
  EXPECT(nearpage_memory_create(&later.known, &none) == -EINVAL);
  EXPECT(strstr(nearpage_last_error(), "does not know") != NULL);
  EXPECT(nearpage_memory_destroy(NULL) == 0);

  EXPECT(nearpage_pages_alloc(NULL, 0, 0, NEARPAGE_ANY_NODE, &page) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 0, 0, NEARPAGE_ANY_NODE, NULL) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 11, 0, NEARPAGE_ANY_NODE, &page) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 4000000000u, 0, NEARPAGE_ANY_NODE, &page) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 0, 128, NEARPAGE_ANY_NODE, &page) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 0, 0, 77, &page) == -EINVAL);
  EXPECT(nearpage_pages_alloc(memory, 0, 0, -5, &page) == -EINVAL);
  EXPECT(nearpage_pages_free(memory, NULL, 0) == 0);
  EXPECT(nearpage_pages_free(memory, &bytes, 0) < 0);
  EXPECT(nearpage_pages_alloc(memory, 2, NEARPAGE_ZERO, NEARPAGE_ANY_NODE, &page) == 0);
  EXPECT(((size_t)page & 16383) == 0 && *(char *)page == 0);
  EXPECT(nearpage_pages_free(memory, page, 1) == -EINVAL);
  EXPECT(strlen(nearpage_last_error()) > 10);
  EXPECT(nearpage_pages_free(memory, (char *)page + 1, 2) == -EINVAL);
  EXPECT(nearpage_page_lock_timeout(memory, page, 1000) == 0);
  EXPECT(nearpage_page_lock_timeout(memory, page, 1000) == -ETIMEDOUT);
  EXPECT(nearpage_page_trylock(memory, page) == 0);
  EXPECT(nearpage_pages_free(memory, page, 2) == -EBUSY);
  EXPECT(nearpage_page_unlock(memory, page) == 0);
  EXPECT(nearpage_page_unlock(memory, page) == -EPERM);
  EXPECT(nearpage_pages_free(memory, page, 2) == 0);
  EXPECT(nearpage_pages_free(memory, page, 2) == -EINVAL);

  EXPECT(nearpage_cache_create(memory, "c", 0, 0, &cache) == -EINVAL);
  EXPECT(nearpage_cache_create(memory, "c", 64, 3, &cache) == -EINVAL);
  EXPECT(nearpage_cache_create(memory, NULL, 64, 0, &cache) == -EINVAL);
  EXPECT(strcmp(nearpage_last_error(), "the name is NULL") == 0);
  EXPECT(nearpage_cache_create(memory, "c", 64, 0, &cache) == 0);
  EXPECT(nearpage_cache_create(memory, "c", 64, 0, &again) == -EEXIST);
  EXPECT(nearpage_memory_destroy(memory) == -EBUSY);
  EXPECT(nearpage_cache_alloc(cache, 0, NEARPAGE_ANY_NODE, &object) == 0);
  EXPECT(nearpage_cache_destroy(cache) == -EBUSY);
  EXPECT(nearpage_cache_free(cache, (char *)object + 1) == -EINVAL);
  EXPECT(nearpage_cache_free(cache, &bytes) == -EFAULT);
  EXPECT(nearpage_cache_free(cache, object) == 0);
  EXPECT(nearpage_cache_free(cache, NULL) == 0);
  EXPECT(nearpage_cache_destroy(cache) == 0);

  EXPECT(nearpage_bytes_alloc(memory, 0, 0, 0, NEARPAGE_ANY_NODE, &object) == -EINVAL);
  EXPECT(nearpage_bytes_alloc(memory, 100, 3, 0, NEARPAGE_ANY_NODE, &object) == -EINVAL);
  EXPECT(nearpage_bytes_alloc(memory, (size_t)-1, 0, 0, NEARPAGE_ANY_NODE, &object) < 0);
  EXPECT(nearpage_bytes_alloc(memory, 100, 128, 0, NEARPAGE_ANY_NODE, &object) == 0);
  EXPECT(((size_t)object & 127) == 0 && nearpage_bytes_usable(memory, object) >= 100);
  EXPECT(nearpage_bytes_free(memory, object) == 0);

  EXPECT(nearpage_text(memory, 99, 0, large, sizeof large) == -EINVAL);
  EXPECT(nearpage_text(memory, NEARPAGE_TEXT_VMSTAT, 0, small, sizeof small) > 8 && strlen(small) == 7);
  EXPECT(nearpage_text(memory, NEARPAGE_TEXT_NUMASTAT, 99, large, sizeof large) == -EINVAL);
  EXPECT(nearpage_text(memory, NEARPAGE_TEXT_ZONEINFO, 0, large, sizeof large) > 0);
  EXPECT(strstr(large, "Node 0") != NULL);
  stats.size = sizeof stats;
  EXPECT(nearpage_node_stats(memory, 99, &stats) == -EINVAL);
  EXPECT(nearpage_node_stats(memory, 0, &stats) == 0 && stats.free_pages > 0);
  stats.size = 0;
  EXPECT(nearpage_node_stats(memory, 0, &stats) == -EINVAL);
  EXPECT(strstr(nearpage_last_error(), "sizeof(nearpage_stats)") != NULL);

  memset(&by, 0, sizeof by);
  by.size = sizeof by;
  EXPECT(nearpage_policy_create(memory, &by, &policy) == 0);
  EXPECT(nearpage_pages_alloc_by(memory, policy, 0, 0, &page) == 0);
  EXPECT(nearpage_pages_free(memory, page, 0) == 0);
  nearpage_policy_destroy(policy);
  by.kind = NEARPAGE_POLICY_WEIGHTED_INTERLEAVE;
  by.count = 1;
  by.nodes = &node;
  by.weights = &weight;
  EXPECT(nearpage_policy_create(memory, &by, &policy) == -EINVAL);
  EXPECT(strstr(nearpage_last_error(), "1 to 255") != NULL);

  EXPECT(nearpage_set_limits(memory, NEARPAGE_ANY_NODE, 1 << 20, 2 << 20) == -EINVAL);
  EXPECT(nearpage_in_use(memory, NEARPAGE_ANY_NODE, &bytes) == 0);
  EXPECT(nearpage_set_limits(memory, NEARPAGE_ANY_NODE, bytes + (1 << 20), 0) == 0);
  EXPECT(nearpage_pages_alloc(memory, 10, 0, NEARPAGE_ANY_NODE, &page) == -ENOMEM);
  EXPECT(nearpage_pages_alloc_bulk(memory, 0, 99, 1, &page, &got) < 0 && got == 0);
  EXPECT(nearpage_set_limits(memory, NEARPAGE_ANY_NODE, 0, 0) == 0);
  EXPECT(nearpage_shrinker_add(memory, NULL, NULL) == -EINVAL);
  EXPECT(nearpage_reclaim_start(memory, 0) == -EINVAL);
}

/* Bytes of any size, larger and smaller. */
static void any_size(void) {
  static const size_t sizes[] = {100, 5000, 3 << 20, 5 << 20, (size_t)1 << 30, 6 << 20, 1 << 20, 40};
  unsigned char *bytes = NULL;
  void *moved = NULL, *other;
  uint64_t after;
  size_t i, held = 0;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t kept = held < sizes[i] ? held : sizes[i];
    EXPECT(nearpage_bytes_realloc(memory, bytes, sizes[i], 64, 0, NEARPAGE_ANY_NODE, &moved) == 0);
    bytes = moved;
    EXPECT(((size_t)bytes & 63) == 0 && nearpage_bytes_usable(memory, bytes) >= sizes[i]);
    EXPECT(held == 0 || (bytes[0] == 1 && bytes[kept / 2] == (kept / 2 ? 2 : 1)));
    held = sizes[i];
    bytes[0] = 1;
    /* The middle of what this and the next have in common. */
    if (i + 1 < sizeof sizes / sizeof *sizes) {
      size_t both = held < sizes[i + 1] ? held : sizes[i + 1];
      bytes[both / 2] = 2;
    }
  }
  EXPECT(nearpage_bytes_realloc(memory, bytes + 1, 50, 0, 0, NEARPAGE_ANY_NODE, &moved) == -EINVAL);
  EXPECT(nearpage_bytes_realloc(memory, bytes, 0, 0, 0, NEARPAGE_ANY_NODE, &moved) == -EINVAL && moved == bytes);
  EXPECT(nearpage_bytes_free(memory, bytes) == 0);
  EXPECT(nearpage_bytes_alloc(memory, 9 << 20, 8 << 20, 0, 0, &other) == 0);
  EXPECT(((size_t)other & ((8 << 20) - 1)) == 0 && nearpage_node_of(memory, (char *)other + (5 << 20)) == 0);
  EXPECT(nearpage_in_use(memory, 0, &after) == 0 && after >= (9 << 20));
  EXPECT(nearpage_bytes_alloc(memory, 9 << 20, 0, 0, 77, &moved) == -EINVAL);
  EXPECT(nearpage_bytes_alloc(memory, 9 << 20, 3, 0, 0, &moved) == -EINVAL);
  EXPECT(nearpage_set_limits(memory, NEARPAGE_ANY_NODE, after + (4 << 20), 0) == 0);
  EXPECT(nearpage_bytes_alloc(memory, 9 << 20, 0, 0, NEARPAGE_ANY_NODE, &moved) == -ENOMEM);
  EXPECT(strstr(nearpage_last_error(), "hard limit of the allocator") != NULL);
  EXPECT(nearpage_bytes_free(memory, (char *)other + 4096) < 0);
  EXPECT(nearpage_bytes_free(memory, other) == 0);
  EXPECT(nearpage_bytes_alloc(memory, 9 << 20, 0, 0, NEARPAGE_ANY_NODE, &moved) == 0);
  EXPECT(nearpage_bytes_free(memory, moved) == 0 && nearpage_bytes_free(memory, moved) < 0);
  EXPECT(nearpage_set_limits(memory, NEARPAGE_ANY_NODE, 0, 0) == 0);
}

/* A memory of defaults has more than it began with; one with a size has that. */
static void growth(void) {
  nearpage_memory *grows;
  nearpage_memory_options options;
  void *block, *blocks[100];
  int i;
  EXPECT(nearpage_memory_create(NULL, &grows) == 0);
  for (i = 0; i < 100; i++) EXPECT(nearpage_pages_alloc(grows, 10, 0, NEARPAGE_ANY_NODE, &blocks[i]) == 0);
  for (i = 0; i < 100; i++) EXPECT(nearpage_pages_free(grows, blocks[i], 10) == 0);
  /* What a limit refuses is not grown for. */
  EXPECT(nearpage_set_limits(grows, NEARPAGE_ANY_NODE, 2 << 20, 0) == 0);
  EXPECT(nearpage_pages_alloc(grows, 10, 0, NEARPAGE_ANY_NODE, &block) == -ENOMEM);
  EXPECT(nearpage_memory_destroy(grows) == 0);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bytes_per_node = 64 << 20;
  options.fake_nodes = 1;
  EXPECT(nearpage_memory_create(&options, &grows) == 0);
  for (i = 0; i < 100 && nearpage_pages_alloc(grows, 10, 0, NEARPAGE_ANY_NODE, &blocks[i]) == 0; i++) {
  }
  EXPECT(i < 17 && nearpage_memory_destroy(grows) == 0);
}

static void *works(void *unused) {
  int i;
  for (i = 0; i < 20000; i++) {
    void *pages[16];
    size_t got;
    EXPECT(nearpage_pages_alloc_bulk(memory, 0, NEARPAGE_ANY_NODE, 16, pages, &got) == 0);
    EXPECT(nearpage_pages_free_bulk(memory, got, pages) == 0);
  }
  return unused;
}

static void threads_and_forks(void) {
  pthread_t threads[4];
  int i;
  for (i = 0; i < 4; i++) EXPECT(pthread_create(&threads[i], NULL, works, NULL) == 0);
  for (i = 0; i < 20; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) {
      void *page;
      if (nearpage_pages_alloc(memory, 0, 0, NEARPAGE_ANY_NODE, &page) != 0) _exit(2);
      if (i % 2 && nearpage_reclaim_start(memory, 10) != 0) _exit(4);
      if (i % 4 == 3) _exit(nearpage_memory_destroy(memory) == 0 ? 0 : 5);
      _exit(nearpage_pages_free(memory, page, 0) == 0 ? 0 : 3);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  for (i = 0; i < 4; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
}

/* Figures over a socket, asked for as any program can. */
static void served(void) {
  struct sockaddr_un address;
  char answer[64];
  const char *request = "nearpage 1 proc/buddyinfo\n";
  size_t length = 0;
  int connection = socket(AF_UNIX, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "/tmp/nearpage-c-test.%d", (int)getpid());
  EXPECT(nearpage_stats_serve(NULL, address.sun_path) == -EINVAL);
  EXPECT(nearpage_stats_serve(memory, "/nonexistent/socket") == -ENOENT);
  EXPECT(nearpage_stats_serve(memory, address.sun_path) == 0);
  EXPECT(nearpage_stats_serve(memory, address.sun_path) == 0);
  EXPECT(connect(connection, (struct sockaddr *)&address, sizeof address) == 0);
  EXPECT(write(connection, request, strlen(request)) == (ssize_t)strlen(request));
  while (length < 14) {
    ssize_t more = read(connection, answer + length, sizeof answer - length);
    EXPECT(more > 0);
    length += (size_t)more;
  }
  EXPECT(memcmp(answer, "nearpage 1 ok ", 14) == 0);
  close(connection);
  EXPECT(nearpage_stats_serve(memory, NULL) == 0);
  EXPECT(access(address.sun_path, F_OK) != 0);
}

/* A plugin that uses the library comes and goes. */
static void opened_and_closed(const char *library) {
  int i;
  for (i = 0; i < 3; i++) {
    int (*create)(const nearpage_memory_options *, nearpage_memory **);
    int (*destroy)(nearpage_memory *);
    nearpage_memory *plugins;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    EXPECT(handle != NULL);
    *(void **)&create = dlsym(handle, "nearpage_memory_create");
    *(void **)&destroy = dlsym(handle, "nearpage_memory_destroy");
    EXPECT(create(NULL, &plugins) == 0 && destroy(plugins) == 0);
    EXPECT(dlclose(handle) == 0);
  }
}

int main(int count, char **arguments) {
  nearpage_memory_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bytes_per_node = 64 << 20;
  EXPECT(nearpage_memory_create(&options, &memory) == 0);
  wrong_arguments();
  any_size();
  growth();
  EXPECT(nearpage_reclaim_start(memory, 1000) == 0);
  threads_and_forks();
  served();
  EXPECT(nearpage_memory_destroy(memory) == 0);
  if (count > 1) opened_and_closed(arguments[1]);
  puts("all calls as documented");
  return 0;
}
