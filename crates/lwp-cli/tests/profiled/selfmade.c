/* A program that profiles itself. It executes the same instructions whatever records it gets. Arguments: the events, as
 * in Flags; the interval. */
#include <lwp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1 << 18 };

static struct lwp_control_block block __attribute__((aligned(64)));
static unsigned char ring[BYTES] __attribute__((aligned(4096)));

__attribute__((noinline)) static long leaf(long n)
{
	long sum = 0;
	for (long i = 0; i < n; i++)
		sum += i & 3 ? i : -i;
	return sum;
}

__attribute__((noinline)) static long deep(int n)
{
	return n < 2 ? n : deep(n - 1) + deep(n - 2);
}

__attribute__((noinline)) static long small(int n)
{
	return leaf(n) + deep(n % 9);
}

__attribute__((noinline)) static long large(int n)
{
	return leaf(2 * n) + deep(n % 7);
}

static long (*volatile works[2])(int) = { small, large };

int main(int argc, char **argv)
{
	struct lwp_capabilities capabilities;
	if (argc < 3 || lwp_query(&capabilities) != LWP_READY)
		return 2;
	block.flags = (uint32_t)strtoul(argv[1], NULL, 0);
	block.buffer_size_random = BYTES;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	for (unsigned event = 1; event <= 3; event++)
		lwp_slot(&block, &capabilities, event)->interval = atoi(argv[2]);
	long sum = 0;
	__llwpcb(&block);
	for (int i = 0; i < 100; i++) {
		sum += works[i & 1](i);
		__lwpval32((uint32_t)i, (uint32_t)sum, 1);
		sum += __lwpins64((uint64_t)i, 7, 2);
	}
	sum += __slwpcb() == &block;
	__llwpcb(NULL);
	uint64_t digest = 14695981039346656037ull ^ (uint64_t)sum;
	for (unsigned i = 0; i < BYTES; i++)
		digest = (digest ^ ring[i]) * 1099511628211ull;
	digest = (digest ^ block.buffer_head_offset) * 1099511628211ull;
	printf("%016llx\n", (unsigned long long)(digest | 1ull << 63));
	return 0;
}
