/* What a record of Lightweight Profiling costs, by what it records, in static and in generated code.
 *
 *     records
 *
 * A loop runs with an interval that leads to no record, and then with one that does; the difference, by the number of
 * records, is what one costs. Prints a line for each kind: its name, and microseconds in static and in generated code,
 * "-" where there is no such record. */
#define _GNU_SOURCE
#include <lwp_arch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RECORDS = 4096, ROUNDS = 200000, NEVER = (1 << 25) - 1, PAIRS = 5 };

/* Two loads' worth of cache lines apart, more than any modelled cache keeps. */
enum { LINES = 1 << 17, LINE = 64 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(4096)));
static struct lwp_capabilities capabilities;
static char *lines;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* lea 0(%rsi,%rdi,8),%rax; add $64,%rsi; and %rdx,%rsi; mov (%rcx,%rsi),%al; dec %rdi; jnz; ret */
static const unsigned char code[] = {
	0x48, 0x8d, 0x04, 0xfe, 0x48, 0x83, 0xc6, 0x40, 0x48, 0x21, 0xd6, 0x8a,
	0x04, 0x31, 0x48, 0xff, 0xcf, 0x75, 0xed, 0xc3,
};
typedef void loop(long rounds, unsigned long from, unsigned long mask, char *lines);

__asm__(".text\n.globl static_loop\n.type static_loop,@function\nstatic_loop:\n"
	"1: lea (%rsi,%rdi,8),%rax\n add $64,%rsi\n and %rdx,%rsi\n mov (%rcx,%rsi),%al\n dec %rdi\n jnz 1b\n ret\n"
	".size static_loop,.-static_loop\n");
extern loop static_loop;

struct kind {
	const char *name;
	int event, interval;
	unsigned flags, filters;
	int full;
};

static double once(const struct kind *kind, loop *run, int interval, unsigned *records)
{
	memset(&block, 0, sizeof block);
	block.flags = LWP_FLAG(kind->event) | kind->flags;
	block.buffer_size_random = kind->full ? capabilities.min_buffer_bytes : sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	block.filters = kind->filters;
	block.base_ip = (uint64_t)(uintptr_t)run;
	block.limit_ip = block.base_ip + sizeof code - 1;
	struct lwp_event_slot *slot = lwp_slot(&block, &capabilities, (unsigned)kind->event);
	slot->interval = slot->counter = interval;
	__llwpcb(&block);
	double start = now();
	run(ROUNDS, 0, (unsigned long)LINES * LINE - 1, lines);
	double end = now();
	__slwpcb();
	__llwpcb(NULL);
	*records = block.buffer_head_offset / sizeof ring[0] + (unsigned)block.missed_events;
	return end - start;
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;
	return (difference > 0) - (difference < 0);
}

/* The median of several pairs. */
static void print_cost(const struct kind *kind, loop *run)
{
	double costs[PAIRS];
	unsigned none, records;
	once(kind, run, kind->interval, &records);
	for (int pair = 0; pair < PAIRS; pair++) {
		double without = once(kind, run, NEVER, &none);
		costs[pair] = (once(kind, run, kind->interval, &records) - without) / (records ? records : 1);
	}
	qsort(costs, PAIRS, sizeof costs[0], compare);
	if (records == 0 || none != 0)
		printf("\t-");
	else
		printf("\t%.2f", costs[PAIRS / 2]);
}

/* The mean of one call of each kind of instruction. */
static void print_instructions(void)
{
	enum { TIMES = 2000 };
	memset(&block, 0, sizeof block);
	block.flags = LWP_FLAG(1);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	__llwpcb(&block);
	double start = now();
	for (unsigned time = 0; time < TIMES; time++)
		__lwpins32(time, time, 1);
	printf("LWPINS\t%.2f\t-\n", (now() - start) / TIMES);
	start = now();
	for (unsigned time = 0; time < TIMES; time++)
		__lwpval32(time, time, 1);
	printf("LWPVAL\t%.2f\t-\n", (now() - start) / TIMES);
	start = now();
	for (unsigned time = 0; time < TIMES; time++)
		__slwpcb();
	printf("SLWPCB\t%.2f\t-\n", (now() - start) / TIMES);
	start = now();
	for (unsigned time = 0; time < TIMES; time++) {
		__llwpcb(NULL);
		__llwpcb(&block);
	}
	printf("LLWPCB, off and on\t%.2f\t-\n", (now() - start) / TIMES);
	__llwpcb(NULL);
}

int main(void)
{
	static const unsigned stamped = LWP_FLAG_TIME_STAMPS, continuous = LWP_FLAG_CONTINUOUS;
	static const struct kind kinds[] = {
		{ "instructions, every 997th", 2, 997, 0, 0, 0 },
		{ "branches, every 101st", 3, 101, 0, 0, 0 },
		{ "data cache misses, every 101st", 4, 101, 0, 0, 0 },
		{ "core clocks, every 997th", 5, 997, 0, 0, 0 },
		{ "instructions within an IP filter", 2, 997, 0, LWP_FILTER_IPF, 0 },
		{ "branches within an IP filter", 3, 101, 0, LWP_FILTER_IPF, 0 },
		{ "branches with time stamps", 3, 101, stamped, 0, 0 },
		{ "branches, continuous mode", 3, 101, continuous, 0, 0 },
		{ "branches missed into a full ring", 3, 101, 0, 0, 1 },
	};
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	lines = mmap(NULL, (size_t)LINES * LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	void *generated = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (lines == MAP_FAILED || generated == MAP_FAILED)
		return 3;
	memcpy(generated, code, sizeof code);
	for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
		printf("%s", kinds[kind].name);
		print_cost(&kinds[kind], static_loop);
		print_cost(&kinds[kind], (loop *)generated);
		printf("\n");
	}
	print_instructions();
	return 0;
}
