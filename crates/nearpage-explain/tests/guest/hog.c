// SPDX-License-Identifier: MIT OR Apache-2.0
/* hog MIB [NODE]: touches memory, bound to a node if one is given, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t bytes = (size_t)atol(argv[1]) << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (argc > 2) {
		unsigned long mask = 1UL << atoi(argv[2]);

		/* MPOL_BIND is 2. */
		if (syscall(SYS_set_mempolicy, 2, &mask, 64))
			return 3;
	}
	if (memory == MAP_FAILED)
		return 2;
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	return 0;
}
