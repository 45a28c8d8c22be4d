// SPDX-License-Identifier: MIT OR Apache-2.0
/* slowly MIB NODE SECONDS: touches memory that it prefers on a node, a bit each tenth of a second, and stays. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t bytes = (size_t)atol(argv[1]) << 20, step = bytes / 10 / atol(argv[3]);
	unsigned long mask = 1UL << atoi(argv[2]);
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)argc;
	/* MPOL_PREFERRED is 1. */
	if (memory == MAP_FAILED || syscall(SYS_set_mempolicy, 1, &mask, 64))
		return 2;
	for (size_t at = 0; at < bytes; at += 4096) {
		if (at % step < 4096)
			usleep(100000);
		memory[at] = 1;
	}
	pause();
	return 0;
}
