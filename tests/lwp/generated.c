/* Events of generated code that is executed often, rewritten, and rewrites itself: what is recorded of it.
 *
 * Arguments: events, as a sum of LWP_FLAG(event) >> 1 for instructions (2) and branches (4), rounds. */
#define _GNU_SOURCE
#include <lwp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RECORDS = 65536, INSTRUCTIONS = 61, BRANCHES = 23, PAGE = 4096, FUNCTION = 0x1f };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static unsigned long long digest = 14695981039346656037ull;
static unsigned records[2], wrong;

static const unsigned char function[FUNCTION] = {
	0xb9, 40, 0, 0, 0, /* mov ecx, 40 */
	0x0f, 0x1f, 0x00, /* 5: nop, or something else */
	0xf6, 0xc1, 0x01, /* test cl, 1 */
	0x74, 0x02, /* jz over */
	0xff, 0xc0, /* inc eax */
	0xfe, 0x05, 0x04, 0, 0, 0, /* over: inc byte [what is added] */
	0xeb, 0x00, /* jmp next */
	0x83, 0xc0, 0x00, /* add eax, what is added */
	0xff, 0xc9, /* dec ecx */
	0x75, 0xe7, /* jnz 5 */
	0xc3, /* ret */
};
static const unsigned char still[6] = { 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 };
static const unsigned char others[3][3] = { { 0x0f, 0x1f, 0x00 }, { 0x83, 0xc0, 0x01 }, { 0x83, 0xe8, 0x02 } };

/* Every other function does not rewrite itself. Its instructions differ from the last one's. */
static void generate(unsigned char *page, unsigned round)
{
	unsigned char made[FUNCTION];
	memcpy(made, function, FUNCTION);
	memcpy(made + 5, others[round % 3], 3);
	if (round & 1)
		memcpy(made + 15, still, sizeof still);
	made[0x19] = (unsigned char)round;
	for (unsigned at = 0; at < FUNCTION; at++)
		*(volatile unsigned char *)(page + at) = made[at];
}

static unsigned expected(unsigned round)
{
	static const unsigned other[3] = { 0, 1, -2u };
	unsigned sum = 0;
	signed char added = (signed char)round;
	for (unsigned left = 40; left > 0; left--) {
		added = (signed char)(added + !(round & 1));
		sum += other[round % 3] + (left & 1) + (unsigned)added;
	}
	return sum;
}

/* Records lie in the function, at the beginning of an instruction. */
static void drain(const unsigned char *page)
{
	unsigned head = block.buffer_head_offset, tail = block.buffer_tail_offset;
	while (tail != head) {
		const unsigned char *bytes = (const unsigned char *)ring + tail;
		uint64_t place, target;
		memcpy(&place, bytes + 8, sizeof place);
		memcpy(&target, bytes + 16, sizeof target);
		place -= (uintptr_t)page;
		if (place < FUNCTION) {
			records[bytes[0] == 3]++;
			wrong += strchr("\x05\x08\x0b\x0d\x0f\x15\x17\x1a\x1c\x1e", (int)place) == NULL;
			if (bytes[0] == 3 && target - (uintptr_t)page < FUNCTION)
				place |= (target - (uintptr_t)page) << 8;
			digest = (digest ^ bytes[0] ^ place << 8) * 1099511628211ull;
		}
		tail = (tail + sizeof ring[0]) % sizeof ring;
	}
	block.buffer_tail_offset = tail;
}

int main(int argc, char **argv)
{
	unsigned events = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 60;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	unsigned char *page =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 3;
	block.flags = (events & 2 ? LWP_FLAG(2) : 0) | (events & 4 ? LWP_FLAG(3) : 0);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	for (unsigned event = 2; event <= 3; event++) {
		struct lwp_event_slot *slot = lwp_slot(&block, &capabilities, event);
		slot->interval = slot->counter = event == 2 ? INSTRUCTIONS : BRANCHES;
	}
	for (unsigned round = 0; round < rounds; round++) {
		generate(page, round);
		for (unsigned time = 0; time < 3; time++) {
			page[0x19] = (unsigned char)round;
			__llwpcb(&block);
			unsigned result = 0;
			__asm__ volatile("call *%1" : "+a"(result) : "r"(page) : "rcx", "memory", "cc");
			__llwpcb(NULL);
			wrong += result != expected(round);
			drain(page);
		}
	}
	printf("%u and %u records, %u wrong, digest %llx, missed %llu\n", records[0], records[1], wrong, digest,
	       (unsigned long long)block.missed_events);
	return wrong != 0;
}
