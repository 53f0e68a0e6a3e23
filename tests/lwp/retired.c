/* Events of instructions and branches, thousands of them in the same few blocks: what is recorded, and that
 * nothing is counted twice or lost when a timer interrupts everywhere.
 *
 * Arguments: batches, random bits, microseconds between interrupts. */
#define _GNU_SOURCE
#include <lwp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alarm.h"

#ifndef INTERVALS
#define INTERVALS INSTRUCTIONS = 61, BRANCHES = 23
#endif
enum { RECORDS = 65536, INTERVALS, CALIBRATION = 100 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static struct lwp_event_slot *slots[2];
static volatile sig_atomic_t seen;
static unsigned long long total[2], digest = 14695981039346656037ull;
static unsigned records[2];

static void tick(int signal)
{
	(void)signal;
	/* Only what is executed with profiling on counts. */
	if (__slwpcb() != NULL)
		seen++;
}

static __attribute__((noinline)) unsigned odd(unsigned x) { return x * 3 + 1; }
static __attribute__((noinline)) unsigned even(unsigned x) { return x / 2; }
static unsigned (*volatile const step[2])(unsigned) = { even, odd };

/* Direct and indirect branches, string instructions, flags that live across blocks. */
static __attribute__((noinline)) unsigned work(unsigned rounds)
{
	unsigned sum = 0;
	char from[40] = "what is moved about", to[40];
	for (unsigned round = 1; round <= rounds; round++) {
		unsigned x = round & 1023;
		for (unsigned depth = 0; x > 1 && depth < 12; depth++)
			x = step[x & 1](x);
		size_t count = x & 31;
		char *source = from, *target = to;
		__asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(count) : : "memory");
		sum += x > 7 ? even(x) : odd(x) ^ (unsigned char)to[x & 15];
	}
	return sum;
}

static void drain(void)
{
	unsigned head = block.buffer_head_offset, tail = block.buffer_tail_offset;
	while (tail != head) {
		const unsigned char *bytes = (const unsigned char *)ring + tail;
		records[bytes[0] == 3]++;
		for (unsigned at = 0; at < sizeof ring[0]; at++)
			digest = (digest ^ bytes[at]) * 1099511628211ull;
		tail = (tail + sizeof ring[0]) % sizeof ring;
	}
	block.buffer_tail_offset = tail;
}

/* What has been counted since `records` were none: only without random bits is it more than a guess. */
static void count(void)
{
	static const int interval[2] = { INSTRUCTIONS, BRANCHES };
	for (int event = 0; event < 2; event++)
		total[event] = records[event] * (interval[event] + 1ull) + interval[event] -
			       (unsigned)slots[event]->counter;
}

static unsigned batch(unsigned (*what)(unsigned), unsigned argument)
{
	__llwpcb(&block);
	unsigned result = what(argument);
	__llwpcb(NULL);
	drain();
	return result;
}

static unsigned send(unsigned signal)
{
	for (int i = 0; i < CALIBRATION; i++)
		syscall(SYS_tgkill, getpid(), getpid(), signal);
	return 0;
}

static void measure(unsigned (*what)(unsigned), unsigned argument, unsigned batches)
{
	records[0] = records[1] = 0;
	seen = 0;
	slots[0]->counter = INSTRUCTIONS;
	slots[1]->counter = BRANCHES;
	for (unsigned i = 0; i < batches; i++)
		batch(what, argument);
	count();
}

static int interrupted(unsigned batches, long every)
{
	unsigned long long one[2], quiet[2], wrong = 0;
	measure(send, 0, 1);
	memcpy(quiet, total, sizeof quiet);
	measure(send, SIGALRM, 1);
	for (int event = 0; event < 2; event++)
		one[event] = (total[event] - quiet[event]) / CALIBRATION;
	measure(work, 500, batches);
	memcpy(quiet, total, sizeof quiet);
	alarm_every(every);
	measure(work, 500, batches);
	for (int event = 0; event < 2; event++) {
		unsigned long long expected = quiet[event] + one[event] * (unsigned)seen;
		if (total[event] == expected)
			continue;
		fprintf(stderr, "event %d: %llu, expected %llu + %d * %llu\n", event + 2, total[event],
			quiet[event], (int)seen, one[event]);
		wrong++;
	}
	if (block.missed_events != 0)
		fprintf(stderr, "%llu missed\n", (unsigned long long)block.missed_events);
	return wrong != 0 || seen == 0 || block.missed_events != 0;
}

int main(int argc, char **argv)
{
	unsigned batches = argc > 1 ? (unsigned)atoi(argv[1]) : 4;
	unsigned bits = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	on_alarm(tick);
	block.flags = LWP_FLAG(2) | LWP_FLAG(3);
	block.buffer_size_random = sizeof ring | bits << 28;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	for (int event = 0; event < 2; event++) {
		slots[event] = lwp_slot(&block, &capabilities, event + 2);
		slots[event]->interval = event == 0 ? INSTRUCTIONS : BRANCHES;
	}
	if (argc > 3)
		return interrupted(batches, atol(argv[3]));
	measure(work, 100, batches);
	printf("%u and %u records, %llu instructions, %llu branches, digest %llx, missed %llu\n", records[0],
	       records[1], total[0], total[1], digest, (unsigned long long)block.missed_events);
	return 0;
}
