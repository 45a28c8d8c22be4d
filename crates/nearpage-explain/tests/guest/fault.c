// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Takes and asks for pages as told, so that a kernel refuses memory for a known reason.
 *
 * Commands, separated by semicolons, in a write to /proc/fault; flags as FLAG|FLAG:
 *   fill NODE ORDER FLAGS COUNT   takes up to COUNT blocks, without a message at the end
 *   holes EVERY                   gives back every EVERYth of the blocks that it holds, by address
 *   wait MS                       sleeps: other CPUs give back what they cache
 *   drop COUNT                    gives back the COUNT taken last
 *   ask NODE ORDER FLAGS          asks for one block, and gives it back
 *   irq NODE ORDER FLAGS          the same in an interrupt
 *   vmalloc KIB FLAGS             the same of an area
 *   slab COUNT FLAGS              objects of 4 KiB, up to COUNT
 * Node -1 is any. Pages are not touched. A write that empties the machine gives back before it ends: nothing runs
 * meanwhile that needs memory.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

static struct page *held;
static void *objects;
static struct kmem_cache *cache;

static const struct { const char *name; gfp_t flags; } names[] = {
	{ "KERNEL", GFP_KERNEL }, { "ATOMIC", GFP_ATOMIC }, { "NOWAIT", GFP_NOWAIT & ~__GFP_NOWARN }, { "NOFS", GFP_NOFS },
	{ "NOIO", GFP_NOIO }, { "USER", GFP_USER }, { "DMA", GFP_DMA }, { "DMA32", GFP_DMA32 },
	{ "HIGHUSER_MOVABLE", GFP_HIGHUSER_MOVABLE }, { "THISNODE", __GFP_THISNODE }, { "NORETRY", __GFP_NORETRY },
	{ "MEMALLOC", __GFP_MEMALLOC }, { "NOMEMALLOC", __GFP_NOMEMALLOC }, { "COMP", __GFP_COMP },
	{ "RECLAIMABLE", __GFP_RECLAIMABLE }, { "HIGH", __GFP_HIGH }, { "RETRY_MAYFAIL", __GFP_RETRY_MAYFAIL },
	{ "NORECLAIM", 0 },
};

static int flags_of(char *text, gfp_t *flags)
{
	char *word;
	int i;

	*flags = 0;
	while ((word = strsep(&text, "|"))) {
		for (i = 0; i < ARRAY_SIZE(names); i++)
			if (!strcmp(word, names[i].name))
				break;
		if (i == ARRAY_SIZE(names))
			return -EINVAL;
		*flags |= names[i].flags;
	}
	return 0;
}

/* The page behind each in the list, and its order, lie in the page's own words. */
static void hold(struct page *page, int order)
{
	set_page_private(page, order);
	page->mapping = (void *)held;
	held = page;
}

static void drop(long count)
{
	while (held && count--) {
		struct page *page = held;
		int order = page_private(page);

		held = (void *)page->mapping;
		page->mapping = NULL;
		set_page_private(page, 0);
		__free_pages(page, order);
		if (!(count & 1023))
			cond_resched();
	}
}

static long fill(int node, int order, gfp_t flags, long count)
{
	long taken;

	for (taken = 0; taken < count; taken++) {
		struct page *page = alloc_pages_node(node, flags | __GFP_NOWARN, order);

		if (!page)
			break;
		hold(page, order);
		if (!(taken & 1023))
			cond_resched();
	}
	return taken;
}

static void holes(long every)
{
	struct page *page = held, *kept = NULL;
	long at = 0;

	while (page) {
		struct page *next = (void *)page->mapping;

		int order = page_private(page);

		if ((page_to_pfn(page) >> order) % every == 0) {
			page->mapping = NULL;
			set_page_private(page, 0);
			__free_pages(page, order);
		} else {
			page->mapping = (void *)kept;
			kept = page;
		}
		page = next;
		if (!(++at & 1023))
			cond_resched();
	}
	held = kept;
}

static int ask_node, ask_order;
static gfp_t ask_flags;

static void ask(struct irq_work *unused)
{
	struct page *page = alloc_pages_node(ask_node, ask_flags, ask_order);

	pr_info("fault: %s\n", page ? "given" : "refused");
	if (page)
		__free_pages(page, ask_order);
}

static DEFINE_IRQ_WORK(work, ask);

static int carry_out(char *line)
{
	char word[16], text[96];
	int node = 0, order = 0;
	long count = 0;
	gfp_t flags;

	if (sscanf(line, "fill %d %d %95s %ld", &node, &order, text, &count) == 4) {
		if (flags_of(text, &flags))
			return -EINVAL;
		pr_info("fault: %ld blocks taken\n", fill(node, order, flags, count));
	} else if (sscanf(line, "%15s %d %d %95s", word, &node, &order, text) == 4) {
		if (flags_of(text, &flags))
			return -EINVAL;
		ask_node = node;
		ask_order = order;
		ask_flags = flags;
		if (!strcmp(word, "irq")) {
			irq_work_queue(&work);
			irq_work_sync(&work);
		} else if (!strcmp(word, "ask")) {
			ask(NULL);
		} else {
			return -EINVAL;
		}
	} else if (sscanf(line, "holes %ld", &count) == 1) {
		holes(count);
	} else if (sscanf(line, "wait %ld", &count) == 1) {
		msleep(count);
	} else if (sscanf(line, "drop %ld", &count) == 1) {
		drop(count);
	} else if (sscanf(line, "vmalloc %ld %95s", &count, text) == 2) {
		void *area;

		if (flags_of(text, &flags))
			return -EINVAL;
		area = __vmalloc(count << 10, flags);
		pr_info("fault: %s\n", area ? "given" : "refused");
		vfree(area);
	} else if (sscanf(line, "slab %ld %95s", &count, text) == 2) {
		if (flags_of(text, &flags))
			return -EINVAL;
		while (count--) {
			void *object = kmem_cache_alloc(cache, flags);

			if (!object)
				break;
			*(void **)object = objects;
			objects = object;
		}
	} else {
		return -EINVAL;
	}
	return 0;
}

static ssize_t fault_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	char line[512], *rest = line, *command;
	int error = 0;

	if (length >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, length))
		return -EFAULT;
	line[length] = 0;
	while (!error && (command = strsep(&rest, ";")))
		error = carry_out(strim(command));
	return error ? error : length;
}

static const struct proc_ops operations = { .proc_write = fault_write };

static int __init fault_init(void)
{
	cache = kmem_cache_create("fault", 4096, 0, 0, NULL);
	if (!cache || !proc_create("fault", 0600, NULL, &operations))
		return -ENOMEM;
	return 0;
}

static void __exit fault_exit(void)
{
	remove_proc_entry("fault", NULL);
	drop(LONG_MAX);
	while (objects) {
		void *object = objects;

		objects = *(void **)object;
		kmem_cache_free(cache, object);
	}
	kmem_cache_destroy(cache);
}

module_init(fault_init);
module_exit(fault_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Takes and asks for pages as told");
