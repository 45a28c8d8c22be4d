/*
 * nearpage: the NUMA page allocator of a kernel, on real memory of a process.
 *
 * Each function that can fail returns 0 or a negative errno, and leaves a message for nearpage_last_error().
 * Structures of options start with their own size: the library reads what an older header did not know as 0, and
 * refuses what it does not know itself, unless that is 0.
 * All functions may be called by many threads at once, and by the child of a fork; none from a signal handler.
 */

#ifndef NEARPAGE_H
#define NEARPAGE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Any node: the one of the calling thread's CPU first.
 */
#define NEARPAGE_ANY_NODE -1

/**
 * The memory is cleared.
 */
#define NEARPAGE_ZERO 1

/**
 * Only the named node will do.
 */
#define NEARPAGE_THISNODE 2

/**
 * The call fails instead of waiting for reclaim. As for any call, the pages below the `min` watermark stay.
 */
#define NEARPAGE_NOWAIT 4

/**
 * Memory of a node comes from this node, or the call fails.
 */
#define NEARPAGE_BIND_STRICT 1

/**
 * Memory comes from its node as long as the kernel can.
 */
#define NEARPAGE_BIND_ADVISORY 2

/**
 * The kernel is not asked.
 */
#define NEARPAGE_BIND_NONE 3

/**
 * Transparent huge pages are asked for.
 */
#define NEARPAGE_HUGE_ADVISED 1

/**
 * Explicit huge pages of 2 MiB.
 */
#define NEARPAGE_HUGE_EXPLICIT 2

/**
 * No huge pages.
 */
#define NEARPAGE_HUGE_NEVER 3

/**
 * CPUs cache pages behind locks, not by restartable sequences.
 */
#define NEARPAGE_MEMORY_NO_RSEQ 1

/**
 * Wrong frees are looked for on the fast path, too.
 */
#define NEARPAGE_MEMORY_HARDENED 2

/**
 * The variables NEARPAGE_NUMA, NEARPAGE_RSEQ, NEARPAGE_STATS and NEARPAGE_ENV are read.
 */
#define NEARPAGE_MEMORY_READS_ENVIRONMENT 4

/**
 * The node of the calling thread's CPU first.
 */
#define NEARPAGE_POLICY_LOCAL 0

/**
 * The nearest of the named nodes first, then others.
 */
#define NEARPAGE_POLICY_PREFERRED_MANY 1

/**
 * Only the named nodes.
 */
#define NEARPAGE_POLICY_BIND 2

/**
 * The named nodes in turn.
 */
#define NEARPAGE_POLICY_INTERLEAVE 3

/**
 * The named nodes in turn, each as often as its weight says.
 */
#define NEARPAGE_POLICY_WEIGHTED_INTERLEAVE 4

/**
 * As /proc/zoneinfo.
 */
#define NEARPAGE_TEXT_ZONEINFO 0

/**
 * As /proc/buddyinfo.
 */
#define NEARPAGE_TEXT_BUDDYINFO 1

/**
 * As /proc/pagetypeinfo.
 */
#define NEARPAGE_TEXT_PAGETYPEINFO 2

/**
 * As /proc/vmstat.
 */
#define NEARPAGE_TEXT_VMSTAT 3

/**
 * As /sys/devices/system/node/nodeN/numastat, of the named node.
 */
#define NEARPAGE_TEXT_NUMASTAT 4

/**
 * As /proc/slabinfo.
 */
#define NEARPAGE_TEXT_SLABINFO 5

/**
 * Pages that came from another node than wanted, by pair of nodes and reason.
 */
#define NEARPAGE_TEXT_FALLBACKS 6

/**
 * A cache of objects of one size.
 */
typedef struct nearpage_cache nearpage_cache;

/**
 * A memory: pages, objects and their counters.
 */
typedef struct nearpage_memory nearpage_memory;

/**
 * A policy. Threads that share one take turns in it.
 */
typedef struct nearpage_policy nearpage_policy;

/**
 * Options of a memory. Set `size` to `sizeof(nearpage_memory_options)` and all else to 0 before you choose.
 */
typedef struct nearpage_memory_options {
  /**
   * The size of this structure.
   */
  size_t size;
  /**
   * Bytes of each node that are online from the start, rounded down to whole pages; at least 4096. What lies below the
   * node's `min` watermark stays free: of 64 MiB, 63 can be had. 0: 64 MiB, and growth as the next option says.
   */
  uint64_t bytes_per_node;
  /**
   * Bytes of addresses of each node, which the memory may grow to, by 128 MiB each time that a request finds nothing else.
   * 0: if `bytes_per_node` is 0, what the machine has, shared by the nodes; else no growth. Without as many addresses
   * (`ulimit -v`) there is no growth that nobody asked for.
   */
  uint64_t reserve_per_node;
  /**
   * As many emulated nodes, which share the CPUs. 0: the nodes of the kernel.
   */
  uint32_t fake_nodes;
  /**
   * A constant NEARPAGE_BIND_*, or 0 for the default.
   */
  uint32_t bind;
  /**
   * A constant NEARPAGE_HUGE_*, or 0 for what the kernel does by itself.
   */
  uint32_t huge;
  /**
   * Constants NEARPAGE_MEMORY_*, added.
   */
  uint32_t flags;
} nearpage_memory_options;

/**
 * Options of a policy. Set `size` to `sizeof(nearpage_policy_options)` and all else to 0 before you choose.
 */
typedef struct nearpage_policy_options {
  /**
   * The size of this structure.
   */
  size_t size;
  /**
   * A constant NEARPAGE_POLICY_*.
   */
  uint32_t kind;
  /**
   * How many nodes there are in `nodes`.
   */
  uint32_t count;
  /**
   * The nodes. They are copied.
   */
  const uint32_t *nodes;
  /**
   * For NEARPAGE_POLICY_WEIGHTED_INTERLEAVE: a weight of 1 to 255 for each of them.
   */
  const uint8_t *weights;
} nearpage_policy_options;

/**
 * Frees about `pages` pages, of `node` if possible, and returns how many it freed. The background thread calls it, and so
 * does a thread whose request finds no memory: it may only try locks that the program holds while it allocates. What it
 * allocates itself asks no shrinker: it is there or refused.
 */
typedef uint64_t (*nearpage_shrink_fn)(void *context, uint32_t node, uint64_t pages);

/**
 * Counters of a node, in pages. Set `size` to `sizeof(nearpage_stats)` before the call.
 */
typedef struct nearpage_stats {
  /**
   * The size of this structure.
   */
  size_t size;
  /**
   * Pages that are online.
   */
  uint64_t managed_pages;
  /**
   * Pages that are free: neither callers nor CPUs have them.
   */
  uint64_t free_pages;
  /**
   * Below this, requests use the reserves.
   */
  uint64_t watermark_min;
  /**
   * Below this, the background thread works.
   */
  uint64_t watermark_low;
  /**
   * Until this, the background thread works.
   */
  uint64_t watermark_high;
  /**
   * Bytes of addresses that are not online yet.
   */
  uint64_t reserve_left_bytes;
  /**
   * Frees and unlocks of the whole memory that were refused.
   */
  uint64_t misuses;
} nearpage_stats;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The message of this thread's last error, in full; the empty string if there was none. It stays until the thread's next
 * error.
 */
const char *nearpage_last_error(void);

/**
 * The version of the library, as "0.1.0".
 */
const char *nearpage_version(void);

/**
 * Locks the page at an address; waits until it can.
 *
 * Errors: -EINVAL if the page is not allocated, -EFAULT if the address is of no node's range.
 */
int nearpage_page_lock(const struct nearpage_memory *memory, const void *page);

/**
 * Locks a page; waits at most `timeout_ns` nanoseconds.
 *
 * Errors: -ETIMEDOUT, and those of nearpage_page_lock.
 */
int nearpage_page_lock_timeout(const struct nearpage_memory *memory, const void *page, uint64_t timeout_ns);

/**
 * Locks a page if nobody has locked it. Returns 1 if it is locked now, 0 if somebody else has it.
 *
 * Errors: as nearpage_page_lock.
 */
int nearpage_page_trylock(const struct nearpage_memory *memory, const void *page);

/**
 * Unlocks a page and wakes who waits for it.
 *
 * Errors: -EPERM if it is not locked.
 */
int nearpage_page_unlock(const struct nearpage_memory *memory, const void *page);

/**
 * Waits until a page is unlocked, at most `timeout_ns` nanoseconds.
 *
 * Errors: as nearpage_page_lock_timeout.
 */
int nearpage_page_wait(const struct nearpage_memory *memory, const void *page, uint64_t timeout_ns);

/**
 * Makes a memory. `options` may be NULL for the defaults.
 *
 * Errors: -EINVAL for options that mean nothing, -ENOMEM if the kernel gives no memory.
 */
int nearpage_memory_create(const struct nearpage_memory_options *options, struct nearpage_memory **out);

/**
 * Ends a memory. All its pages and objects are gone with it. NULL is accepted.
 *
 * Errors: -EBUSY if a cache of it is not destroyed; the memory then stays.
 */
int nearpage_memory_destroy(struct nearpage_memory *memory);

/**
 * Makes a cache of objects of `bytes` bytes. `align` is a power of two, or 0 for 8. The name must not be that of another
 * cache of the memory.
 *
 * Errors: -EINVAL for a size, an alignment or a name that cannot be, -EEXIST for a taken name, -ENOSPC with too many
 * caches.
 */
int nearpage_cache_create(struct nearpage_memory *memory,
                          const char *name,
                          uint64_t bytes,
                          uint64_t align,
                          struct nearpage_cache **out);

/**
 * Ends a cache. NULL is accepted.
 *
 * Errors: -EBUSY if objects of it are allocated; the cache then stays.
 */
int nearpage_cache_destroy(struct nearpage_cache *cache);

/**
 * Allocates an object near the calling thread's CPU, or on node `on`.
 *
 * Errors: -ENOMEM without memory, -EINVAL for an unknown flag or node.
 */
int nearpage_cache_alloc(const struct nearpage_cache *cache, uint32_t flags, int32_t on, void **out);

/**
 * Frees an object. NULL is accepted.
 *
 * Errors: -EINVAL if it is no object of this cache, -EFAULT if it is of no cache. The call then changes nothing. A second free
 * of an object is refused only with NEARPAGE_MEMORY_HARDENED.
 */
int nearpage_cache_free(const struct nearpage_cache *cache,
                        void *object);

/**
 * Allocates up to `count` objects at once, near the calling thread's CPU; `*got` says how many there were, 0 after an error.
 * If there were fewer, call again for the rest, until it fails.
 *
 * Errors: as nearpage_cache_alloc, if there was not even one.
 */
int nearpage_cache_alloc_bulk(const struct nearpage_cache *cache,
                              uint32_t flags,
                              size_t count,
                              void **objects,
                              size_t *got);

/**
 * Frees objects of one cache.
 *
 * Errors: -EINVAL if some were refused; the others are free then.
 */
int nearpage_cache_free_bulk(const struct nearpage_cache *cache, size_t count, void *const *objects);

/**
 * Allocates `bytes` bytes of any size, near the calling thread's CPU, or on node `on`. `align` is a power of two, or 0 for 8.
 *
 * Up to 4 MiB they are of the memory. More are a mapping of their own, of zeroes, bound as the memory is; without a node its
 * pages come from where they are first touched. Hard limits and nearpage_in_use hear of it, watermarks and the kernel's texts
 * do not.
 *
 * Errors: -EINVAL for a size of 0 or an alignment that is no power of two, -ENOMEM without memory or above a limit.
 */
int nearpage_bytes_alloc(const struct nearpage_memory *memory,
                         size_t bytes,
                         size_t align,
                         uint32_t flags,
                         int32_t on,
                         void **out);

/**
 * Makes what nearpage_bytes_alloc gave larger or smaller: `*out` is where it is now, with what it held as far as there is room.
 * What is at `bytes` is gone then. NULL is accepted for `bytes`: then this is nearpage_bytes_alloc. With NEARPAGE_ZERO all is
 * zero that lies behind what nearpage_bytes_usable told.
 *
 * Errors: as nearpage_bytes_alloc; -EINVAL if nothing begins at `bytes`. What is there stays then, and is the caller's still.
 */
int nearpage_bytes_realloc(const struct nearpage_memory *memory,
                           void *bytes,
                           size_t size,
                           size_t align,
                           uint32_t flags,
                           int32_t on,
                           void **out);

/**
 * Frees what nearpage_bytes_alloc gave. NULL is accepted.
 *
 * Errors: -EINVAL if nothing begins there, -EFAULT if the address is foreign. The call then changes nothing. A second free of
 * less than a page is refused only with NEARPAGE_MEMORY_HARDENED.
 */
int nearpage_bytes_free(const struct nearpage_memory *memory,
                        void *bytes);

/**
 * How many bytes may be used from `bytes` on; 0 if nothing is allocated there.
 */
size_t nearpage_bytes_usable(const struct nearpage_memory *memory, const void *bytes);

/**
 * Allocates a block of 2^order pages of 4096 bytes, aligned to its size.
 *
 * The block is near the calling thread's CPU, or on `node`. The order is 0 to 10. `flags` are NEARPAGE_ZERO,
 * NEARPAGE_THISNODE and NEARPAGE_NOWAIT, added.
 *
 * Errors: -ENOMEM without memory or above a limit, -EINVAL for an unknown node or flag.
 */
int nearpage_pages_alloc(const struct nearpage_memory *memory,
                         uint32_t order,
                         uint32_t flags,
                         int32_t node,
                         void **out);

/**
 * Frees a block by its first address and its order. NULL is accepted.
 *
 * Errors: -EINVAL if no such block is allocated, -EFAULT if the address is of no node's range, -EBUSY if its first page is
 * locked. The call then changes nothing.
 */
int nearpage_pages_free(const struct nearpage_memory *memory,
                        void *pages,
                        uint32_t order);

/**
 * Allocates up to `count` single pages at once; `*got` says how many there were, 0 after an error. Fewer are all that could be
 * had.
 *
 * Errors: as nearpage_pages_alloc, if there was not even one.
 */
int nearpage_pages_alloc_bulk(const struct nearpage_memory *memory,
                              uint32_t flags,
                              int32_t on,
                              size_t count,
                              void **pages,
                              size_t *got);

/**
 * Frees single pages.
 *
 * Errors: -EINVAL if some were refused; the others are free then.
 */
int nearpage_pages_free_bulk(const struct nearpage_memory *memory, size_t count, void *const *pages);

/**
 * The node that an address belongs to, or -EFAULT if it is of no node's range, and in no bytes that were asked for on a node.
 */
int nearpage_node_of(const struct nearpage_memory *memory,
                     const void *address);

/**
 * Limits the bytes in use on a node, or on all with NEARPAGE_ANY_NODE: what callers have and what CPUs cache. A limit of
 * 0 is none. More than the hard limit is never in use: requests then pass over the node, and fail if no other may serve
 * them. Above the soft one, reclaim works.
 *
 * Errors: -EINVAL for an unknown node, or a soft limit that is not below the hard one.
 */
int nearpage_set_limits(const struct nearpage_memory *memory,
                        int32_t node,
                        uint64_t hard_bytes,
                        uint64_t soft_bytes);

/**
 * Bytes of a node, or of all with NEARPAGE_ANY_NODE, that callers have or CPUs cache.
 *
 * Errors: -EINVAL for an unknown node.
 */
int nearpage_in_use(const struct nearpage_memory *memory, int32_t node, uint64_t *out);

/**
 * Makes a policy for requests to `memory`.
 *
 * Errors: -EINVAL for an unknown kind or node, or without nodes where the kind needs some.
 */
int nearpage_policy_create(const struct nearpage_memory *memory,
                           const struct nearpage_policy_options *options,
                           struct nearpage_policy **out);

/**
 * Ends a policy. NULL is accepted.
 */
void nearpage_policy_destroy(struct nearpage_policy *policy);

/**
 * Allocates a block by a policy; otherwise as nearpage_pages_alloc.
 */
int nearpage_pages_alloc_by(const struct nearpage_memory *memory,
                            const struct nearpage_policy *policy,
                            uint32_t order,
                            uint32_t flags,
                            void **out);

/**
 * Adds a callback that can free memory. It stays until the memory ends.
 *
 * Errors: -EINVAL if `shrink` is NULL.
 */
int nearpage_shrinker_add(const struct nearpage_memory *memory, nearpage_shrink_fn shrink, void *context);

/**
 * Starts the background thread, which calls the callbacks when a node is short, lets caches decay and gives free memory
 * back to the kernel every `interval_ms` milliseconds. A child of a fork has none until it starts one.
 *
 * Errors: -EINVAL for an interval of 0, -EAGAIN if no thread can be started.
 */
int nearpage_reclaim_start(const struct nearpage_memory *memory,
                           uint32_t interval_ms);

/**
 * Writes a text of the memory into `buffer`, as snprintf does: at most `bytes` bytes with the zero at the end.
 *
 * Returns the bytes that the whole text needs, without that zero. `of` is the node of NEARPAGE_TEXT_NUMASTAT; for other
 * kinds it means nothing.
 *
 * Errors: -EINVAL for an unknown kind or node.
 */
int64_t nearpage_text(const struct nearpage_memory *memory,
                      uint32_t kind,
                      int32_t of,
                      char *buffer,
                      size_t bytes);

/**
 * Reads the counters of a node.
 *
 * Errors: -EINVAL for an unknown node, or a `size` that is not set.
 */
int nearpage_node_stats(const struct nearpage_memory *memory, uint32_t node, struct nearpage_stats *out);

/**
 * Serves the figures of the memory on a unix socket at `path`, for `nearpage top --process`, `nearpage export --process` and
 * `nearpage proc`. Only this user and root can read it. NULL ends it; another path replaces it. A child of a fork serves
 * nothing until it calls this.
 *
 * Errors: -EEXIST if something is at `path` already, -EAGAIN if no thread can be started, or what the system says.
 */
int nearpage_stats_serve(const struct nearpage_memory *memory,
                         const char *path);

/**
 * Empties all caches and gives free memory above the `high` watermarks back to the kernel. Returns the pages of the blocks
 * that went back.
 */
int64_t nearpage_trim(const struct nearpage_memory *memory);

#ifdef __cplusplus
}
#endif

#endif  /* NEARPAGE_H */
