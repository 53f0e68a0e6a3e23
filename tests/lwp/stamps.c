/* Time stamps of records: 100 MHz, never earlier than those before, whoever stores the record, and also while the
 * program may not read the processor's own counter.
 *
 * Each step inserts a record between two looks at the clock, so that what the stamps say lies between two bounds that
 * hold however long the program waits for a processor. */
#define _GNU_SOURCE
#include <lwp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 2000, STEPS = 40 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));

/* Ticks of 10 ns. Not by the vdso, which reads the processor's counter. */
static double now(void)
{
	struct timespec time;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e8 + (double)time.tv_nsec / 10;
}

static __attribute__((noinline)) void work(long rounds)
{
	__asm__ volatile("1: dec %0; jnz 1b" : "+r"(rounds) : : "cc");
}

int main(void)
{
	static double before[STEPS], after[STEPS];
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	block.flags = LWP_FLAG(2) | LWP_FLAG(3) | LWP_FLAG(30);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	for (int event = 2; event <= 3; event++) {
		struct lwp_event_slot *slot = lwp_slot(&block, &capabilities, event);
		slot->interval = slot->counter = 997;
	}
	__llwpcb(&block);
	for (int step = 0; step < STEPS; step++) {
		if (step == STEPS / 2 || step == STEPS / 4)
			prctl(PR_SET_TSC, step == STEPS / 2 ? PR_TSC_ENABLE : PR_TSC_SIGSEGV);
		work(10000);
		before[step] = now();
		__lwpins32((unsigned)step, 1, 2);
		after[step] = now();
	}
	__llwpcb(NULL);
	unsigned head = block.buffer_head_offset / sizeof ring[0], wrong = 0, inserted = 0;
	unsigned long long stamp = 0, first = 0;
	for (unsigned at = 0; at < head; at++) {
		const unsigned char *bytes = (const unsigned char *)&ring[at];
		unsigned long long last = stamp;
		memcpy(&stamp, bytes + 24, sizeof stamp);
		wrong += stamp < last || stamp == 0;
		if (bytes[0] != 255)
			continue;
		if (inserted == 0)
			first = stamp;
		/* The rate was measured once: a thousandth of the time may be missing, and two looks' own time. */
		double passed = (double)(stamp - first), slack = passed / 1000 + 2;
		if (passed + slack < before[inserted] - after[0] || passed - slack > after[inserted] - before[0]) {
			if (wrong++ < 3)
				fprintf(stderr, "%u: %.0f, and %.0f to %.0f by the clock\n", inserted, passed,
					before[inserted] - after[0], after[inserted] - before[0]);
		}
		inserted++;
	}
	printf("%u records, %u inserted, %u wrong\n", head, inserted, wrong);
	return wrong != 0;
}
