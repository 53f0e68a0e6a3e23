/* LWPINS, LWPVAL and SLWPCB while a timer interrupts them everywhere: no record is lost, made twice or
 * torn, and every result reaches its register. Arguments: rounds, and microseconds until an interrupt. */
#define _GNU_SOURCE
#include <lwp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "alarm.h"

enum { RECORDS = 1024, EVERY = 3 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static volatile sig_atomic_t ticks;
static unsigned long inserted, sampled, wrong;
static unsigned last_insert, last_sample;

static void tick(int signal)
{
	(void)signal;
	ticks++;
}

static void complain(const char *what, unsigned long is, unsigned long expected)
{
	if (wrong++ < 5)
		fprintf(stderr, "%s: %lu, expected %lu\n", what, is, expected);
}

static void drain(void)
{
	unsigned head = block.buffer_head_offset;
	unsigned tail = block.buffer_tail_offset;
	while (tail != head) {
		const struct lwp_record *record = &ring[tail / sizeof *record];
		if (record->event_id == 255) {
			if (record->data1 != last_insert + 1)
				complain("inserted", record->data1, last_insert + 1);
			last_insert = record->data1;
			inserted++;
		} else if (record->event_id == 1) {
			if (record->data1 != last_sample + EVERY)
				complain("sampled", record->data1, last_sample + EVERY);
			last_sample = record->data1;
			sampled++;
		} else {
			complain("event", record->event_id, 255);
		}
		tail = (tail + sizeof *record) % sizeof ring;
	}
	block.buffer_tail_offset = tail;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	long every = argc > 2 ? atol(argv[2]) : 0;
	on_alarm(tick);
	alarm_once(every);

	block.flags = LWP_FLAG(1);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	struct lwp_event_slot *values = lwp_slot(&block, &capabilities, 1);
	values->interval = values->counter = EVERY - 1;
	__llwpcb(&block);
	sig_atomic_t seen = 0;
	for (unsigned round = 1; round <= rounds; round++) {
		if (ticks != seen) {
			seen = ticks;
			alarm_once(every);
		}
		if (__lwpins32(7, round, 5))
			complain("carry", 1, 0);
		__lwpval32(9, round, 6);
		if (__slwpcb() != &block)
			complain("block", 0, (uint64_t)(uintptr_t)&block);
		unsigned left = (EVERY - 1) - round % EVERY;
		if (values->counter != left)
			complain("counter", values->counter, left);
		drain();
	}
	__llwpcb(NULL);
	drain();
	printf("%lu inserted, %lu sampled, %lu wrong, missed %llu\n", inserted, sampled, wrong,
	       (unsigned long long)block.missed_events);
	return wrong != 0 || (every != 0 && ticks == 0);
}
