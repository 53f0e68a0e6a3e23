/* Pages of the ring without rights, which a handler in C repairs while LWP stays on. Arguments: the events, as in Flags;
 * the interval. */
#define _GNU_SOURCE
#include <lwp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4, RECORDS = PAGES * PAGE / 32 - 16 };

static struct lwp_control_block block __attribute__((aligned(64)));
static volatile sig_atomic_t faults;

static void repair(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	faults++;
	mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 3;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = repair;
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGSEGV, &action, NULL);
	unsigned char *ring = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	block.flags = (uint32_t)strtoul(argv[1], NULL, 0);
	block.buffer_size_random = PAGES * PAGE;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	block.threshold = 1 << 20;
	int interval = atoi(argv[2]);
	for (unsigned event = 1; event <= 3; event++)
		lwp_slot(&block, &capabilities, event)->interval = lwp_slot(&block, &capabilities, event)->counter = interval;
	long turns = (long)RECORDS * (interval + 1) / (block.flags & LWP_FLAG(2) ? 2 : 1);
	__llwpcb(&block);
	__asm__ volatile("1: dec %0; jnz 1b" : "+r"(turns) : : "cc");
	void *on = __slwpcb();
	__llwpcb(NULL);
	printf("%d faults, %u records, %s\n", faults, block.buffer_head_offset / 32, on == &block ? "on" : "off");
	return 0;
}
