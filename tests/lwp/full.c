/* Records that a full ring has no room for: of what kind they are, how many are counted, and what is stored once there
 * is room again.
 *
 * Argument: random bits. */
#define _GNU_SOURCE
#include <lwp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 32, VALUES = 3, INSTRUCTIONS = 61, BRANCHES = 23 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static unsigned long long digest = 14695981039346656037ull;
static unsigned records[4], refused;

static void drain(unsigned most)
{
	unsigned head = block.buffer_head_offset, tail = block.buffer_tail_offset;
	for (; tail != head && most > 0; most--) {
		const unsigned char *bytes = (const unsigned char *)ring + tail;
		records[bytes[0] < 4 ? bytes[0] : 0]++;
		for (unsigned at = 0; at < sizeof ring[0]; at++)
			digest = (digest ^ bytes[at]) * 1099511628211ull;
		tail = (tail + sizeof ring[0]) % sizeof ring;
	}
	block.buffer_tail_offset = tail;
}

static __attribute__((noinline)) void work(unsigned rounds)
{
	for (unsigned round = 0; round < rounds; round++) {
		__lwpval32(round, round + 1, 7);
		if (round % 5 == 0)
			refused += __lwpins32(round, round + 2, 9);
		__asm__ volatile("mov $20, %%ecx; 1: dec %%ecx; jnz 1b" : : : "ecx", "cc");
	}
}

int main(int argc, char **argv)
{
	unsigned bits = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	block.flags = LWP_FLAG(1) | LWP_FLAG(2) | LWP_FLAG(3);
	block.buffer_size_random = sizeof ring | bits << 28;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	static const unsigned interval[3] = { VALUES, INSTRUCTIONS, BRANCHES };
	for (unsigned event = 1; event <= 3; event++) {
		struct lwp_event_slot *slot = lwp_slot(&block, &capabilities, event);
		slot->interval = slot->counter = interval[event - 1];
	}
	__llwpcb(&block);
	for (unsigned round = 0; round < 40; round++) {
		work(round);
		/* Now and then all of it, and else only a part: the ring is full sooner, or later. */
		__slwpcb();
		drain(round % 3 == 0 ? RECORDS : round % 7);
	}
	__llwpcb(NULL);
	drain(RECORDS);
	printf("%u inserted, %u refused, %u values, %u instructions, %u branches, missed %llu, digest %llx\n", records[0],
	       refused, records[1], records[2], records[3], (unsigned long long)block.missed_events, digest);
	return block.missed_events == 0 || refused == 0;
}
