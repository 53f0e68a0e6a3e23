/* What SLWPCB writes to the counters of instructions and clocks, time and again: clocks follow from
 * instructions, without a rest lost or gained. For machines that retire three instructions a cycle.
 *
 * Argument: rounds. */
#include <lwp.h>
#include <stdio.h>
#include <stdlib.h>

enum { RECORDS = 4096, LONG = (1 << 25) - 1 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));

static __attribute__((noinline)) unsigned work(unsigned rounds)
{
	unsigned sum = rounds;
	for (unsigned i = 0; i < rounds; i++)
		sum = sum & 1 ? sum * 3 + 1 : sum / 2 + i;
	return sum;
}

int main(int argc, char **argv)
{
	static const int events[3] = { 2, 5, 6 };
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100, wrong = 0, sum = 0;
	struct lwp_event_slot *slots[3];
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	block.flags = LWP_FLAG(2) | LWP_FLAG(5) | LWP_FLAG(6);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	for (int i = 0; i < 3; i++) {
		slots[i] = lwp_slot(&block, &capabilities, events[i]);
		slots[i]->interval = slots[i]->counter = LONG;
	}
	__llwpcb(&block);
	for (unsigned round = 0; round < rounds; round++) {
		unsigned long long counted[3];
		sum += work(round % 37);
		if (__slwpcb() != &block)
			wrong++;
		for (int i = 0; i < 3; i++)
			counted[i] = (unsigned)(slots[i]->interval - slots[i]->counter);
		/* Three instructions a cycle, and half a reference clock. */
		if (counted[1] != counted[0] / 3 || counted[2] != counted[1] / 2) {
			if (wrong++ < 3)
				fprintf(stderr, "round %u: %llu, %llu, %llu\n", round, counted[0], counted[1],
					counted[2]);
		}
	}
	__llwpcb(NULL);
	printf("%u wrong, missed %llu, sum %u\n", wrong, (unsigned long long)block.missed_events, sum);
	return wrong != 0;
}
