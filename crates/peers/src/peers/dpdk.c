/* The parts of DPDK's mempool that are inline in C, as functions. */

#include <stdint.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mempool.h>

/* Starts DPDK without huge pages, devices or shared files. Returns 0 or an errno value. */
int peers_dpdk_start(const char *lcores)
{
	char *arguments[] = {
		"peers", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"--log-level=critical", "-m", "64", (char *)lcores,
	};
	int count = sizeof(arguments) / sizeof(arguments[0]);

	return rte_eal_init(count, arguments) < 0 ? rte_errno : 0;
}

/*
 * A pool whose objects are the pages at odd multiples of `page_bytes` from `first`, which is aligned
 * to `page_bytes`. The header of an object lies in front of it, so that every second page is lost to
 * headers. Returns null with rte_errno set.
 */
struct rte_mempool *peers_dpdk_pool(char *first, size_t bytes, unsigned objects, unsigned page_bytes)
{
	const unsigned flags = RTE_MEMPOOL_F_NO_SPREAD | RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	struct rte_mempool_objsz size;
	struct rte_mempool *pool;
	unsigned element_bytes;
	char *start;

	rte_mempool_calc_obj_size(page_bytes, flags, &size);
	element_bytes = 2 * page_bytes - size.header_size - size.trailer_size;
	if (rte_mempool_calc_obj_size(element_bytes, flags, &size) != 2 * page_bytes) {
		rte_errno = EINVAL;
		return NULL;
	}
	pool = rte_mempool_create_empty("peers", objects, element_bytes,
		RTE_MEMPOOL_CACHE_MAX_SIZE, 0, SOCKET_ID_ANY, flags);
	if (pool == NULL || rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL) != 0)
		return NULL;
	start = first + page_bytes - size.header_size;
	if (rte_mempool_populate_iova(pool, start, RTE_BAD_IOVA, bytes - page_bytes, NULL, NULL) < 0)
		return NULL;
	return pool;
}

/* Gives the calling thread an lcore, and with it a cache in each pool. Returns 0 or an errno value. */
int peers_dpdk_enter_thread(void)
{
	return rte_thread_register() < 0 ? rte_errno : 0;
}

/* The reason for the last null of this thread. */
int peers_dpdk_errno(void)
{
	return rte_errno;
}

void *peers_dpdk_get(struct rte_mempool *pool)
{
	void *object;

	return rte_mempool_get(pool, &object) == 0 ? object : NULL;
}

void peers_dpdk_put(struct rte_mempool *pool, void *object)
{
	rte_mempool_put(pool, object);
}

/* All or nothing. Returns 0 or a negative errno value. */
int peers_dpdk_get_bulk(struct rte_mempool *pool, void **objects, unsigned count)
{
	return rte_mempool_get_bulk(pool, objects, count);
}

void peers_dpdk_put_bulk(struct rte_mempool *pool, void *const *objects, unsigned count)
{
	rte_mempool_put_bulk(pool, objects, count);
}
