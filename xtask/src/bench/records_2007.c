/* What a record in the form of 2007 costs. Prints a line for each kind: its name, and microseconds in static code; there is
 * no row for generated code. */
#define _GNU_SOURCE
#include <lwp_arch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RECORDS = 4095, ROUNDS = 200000, NEVER = (1 << 26) - 1, PAIRS = 5, INSTRUCTIONS = 1, BRANCHES = 2 };

/* The control block of the 2007 proposal: its event slots follow the fixed part. */
static struct {
	uint32_t flags, buffer_size_random;
	uint64_t buffer_base;
	uint32_t head, tail;
	uint64_t missed;
	uint32_t threshold, filters;
	struct {
		uint32_t interval_and_event, counter;
	} slots[8];
} block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(4096)));

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static double once(unsigned event, unsigned interval, unsigned *records)
{
	long rounds = ROUNDS;
	memset(&block, 0, sizeof block);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	block.slots[0].interval_and_event = interval | event << 26;
	block.slots[0].counter = interval;
	__llwpcb(&block);
	double start = now();
	__asm__ volatile("1: dec %0; jnz 1b" : "+r"(rounds));
	double end = now();
	__llwpcb(NULL);
	*records = block.head / (unsigned)sizeof ring[0] + (unsigned)block.missed;
	return end - start;
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;
	return (difference > 0) - (difference < 0);
}

static void print_cost(const char *name, unsigned event, unsigned interval)
{
	double costs[PAIRS];
	unsigned none, records;
	once(event, interval, &records);
	for (int pair = 0; pair < PAIRS; pair++) {
		double without = once(event, NEVER, &none);
		costs[pair] = (once(event, interval, &records) - without) / (records ? records : 1);
	}
	qsort(costs, PAIRS, sizeof costs[0], compare);
	printf("%s\t%.2f\t-\n", name, costs[PAIRS / 2]);
}

int main(void)
{
	print_cost("form of 2007: instructions, every 997th", INSTRUCTIONS, 997);
	print_cost("form of 2007: branches, every 101st", BRANCHES, 101);
	return 0;
}
