/* Loads that miss a data cache of 32 KiB, all of them in places that are known. */
#include <stdlib.h>

enum { BYTES = 1 << 22, LINE = 64, PAGE = 4096 };

static char *memory;

/* Every load is of another line, and comes back to one only after four thousand others. */
static __attribute__((noinline)) unsigned walk(unsigned loads)
{
	unsigned sum = 0;
	for (unsigned i = 0; i < loads; i++)
		sum += memory[(i * (unsigned)(PAGE + LINE)) % BYTES];
	return sum;
}

static __attribute__((noinline)) unsigned stay(unsigned loads)
{
	unsigned sum = 0;
	for (unsigned i = 0; i < loads; i++)
		sum += memory[i % LINE];
	return sum;
}

/* A line of its own with every 64 bytes that it reads; what it writes is no load. */
static __attribute__((noinline)) void copy(unsigned bytes)
{
	char *from = memory, *to = memory + BYTES / 2;
	unsigned long count = bytes;
	__asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
}

int main(void)
{
	unsigned sum = 0;
	memory = calloc(BYTES, 1);
	for (int round = 0; round < 4; round++) {
		sum += walk(20000);
		sum += stay(20000);
		copy(BYTES / 4);
	}
	return (int)(sum & 1);
}
