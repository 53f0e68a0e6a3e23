/* A profile that is switched off and on again and again, as a runtime does around what it does not want to see: the
 * counters, the head and the records are those of every other processor, whatever is changed in the block meanwhile.
 * What happens while it is off is not counted, however long it takes.
 *
 * Arguments: rounds, and passes of a loop while the profile is off. Prints a line for each ten rounds. */
#include <lwp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORDS = 64 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static struct lwp_capabilities capabilities;
static uint64_t state = 1;

static unsigned below(unsigned end)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(state >> 33) % end;
}

static __attribute__((noinline)) unsigned leaf(unsigned value)
{
	return value & 1 ? value * 3 + 1 : value / 2;
}

static __attribute__((noinline)) unsigned work(unsigned passes)
{
	unsigned sum = passes;
	for (unsigned pass = 0; pass < passes; pass++) {
		sum = leaf(sum) ^ pass;
		if (pass % 7 == 0)
			__lwpins32(sum, pass, 1);
		__lwpval32(sum, pass, 2);
	}
	return sum;
}

static __attribute__((noinline)) unsigned unseen(unsigned passes)
{
	unsigned sum = 0;
	for (unsigned pass = 0; pass < passes; pass++)
		sum = leaf(sum + pass);
	return sum;
}

static void change_event(unsigned event)
{
	struct lwp_event_slot *slot = lwp_slot(&block, &capabilities, event);
	if (below(3) == 0)
		slot->counter = below(8) == 0 ? -5 : (int32_t)below(200);
	if (below(9) == 0)
		slot->interval = (int32_t)below(150);
}

/* Most rounds change nothing, or only what a runtime resets. */
static void change(void)
{
	for (unsigned event = 1; event <= 3; event++)
		change_event(event);
	if (below(5) == 0)
		block.buffer_tail_offset = block.buffer_head_offset;
	if (below(9) == 0)
		block.buffer_head_offset = below(RECORDS * 32);
	if (below(11) == 0)
		block.flags = below(8) << 1 | (below(2) ? LWP_FLAG_CONTINUOUS : 0);
	if (below(11) == 0)
		block.buffer_size_random = (RECORDS - below(2)) * 32u | below(4) << 28;
	if (below(13) == 0)
		block.filters = below(2) ? 0 : LWP_FILTER_IPF | (below(2) ? LWP_FILTER_IPI : 0);
	if (below(13) == 0)
		block.limit_ip = block.base_ip + below(64);
}

static uint64_t hash(uint64_t hash, const void *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += sizeof hash) {
		uint64_t word;
		memcpy(&word, (const char *)from + at, sizeof word);
		hash = (hash ^ word) * 1099511628211u;
		hash ^= hash >> 29;
	}
	return hash;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 300, off = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
	uint64_t seen = 14695981039346656037u;
	unsigned sum = 0;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	block.flags = LWP_FLAG(1) | LWP_FLAG(2) | LWP_FLAG(3);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	block.base_ip = (uint64_t)(uintptr_t)leaf;
	block.limit_ip = block.base_ip + 20;
	for (unsigned event = 1; event <= 3; event++)
		lwp_slot(&block, &capabilities, event)->interval = 40;
	for (unsigned round = 0; round < rounds; round++) {
		void *at = NULL;
		change();
		__llwpcb(&block);
		sum += work(below(20));
		if (below(4) == 0)
			at = __slwpcb();
		sum += work(below(4));
		if (below(6) == 0)
			sum += (unsigned)(getppid() == 0);
		__llwpcb(NULL);
		/* Nobody counts and records here. */
		sum += unseen(off) & 0;
		__lwpins32(1, 2, 3);
		if (below(6) == 0)
			sum += (unsigned)(getppid() == 0);
		seen = hash(seen + (at == &block) + 2 * (__slwpcb() != NULL), &block, sizeof block);
		for (unsigned record = 0; record < RECORDS; record++)
			ring[record].core_id = 0;
		seen = hash(seen, ring, sizeof ring);
		if (round % 10 == 9)
			printf("%u: %016llx head %u missed %llu\n", round + 1, (unsigned long long)seen,
			       (unsigned)block.buffer_head_offset, (unsigned long long)block.missed_events);
	}
	printf("sum %u\n", sum);
	return 0;
}
