/* A profile that is switched off and on in a tight loop while a timer interrupts: nothing is counted twice or lost,
 * and a handler meets the profile either on or off.
 *
 * Arguments: rounds, microseconds between interrupts. */
#define _GNU_SOURCE
#include <lwp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alarm.h"

enum { INTERVAL = 1 << 24, TIMES = 1000, CALIBRATION = 100 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[64] __attribute__((aligned(64)));
static struct lwp_event_slot *slot;
static volatile sig_atomic_t seen;

static void tick(int signal)
{
	(void)signal;
	/* Only what is executed with profiling on counts. */
	if (__slwpcb() != NULL)
		seen++;
}

static int send(int signal)
{
	slot->counter = INTERVAL;
	__llwpcb(&block);
	for (int i = 0; i < CALIBRATION; i++)
		syscall(SYS_tgkill, getpid(), getpid(), signal);
	__llwpcb(NULL);
	return INTERVAL - slot->counter;
}

static int toggle(void)
{
	slot->counter = INTERVAL;
	for (int i = 0; i < TIMES; i++) {
		__llwpcb(&block);
		__asm__ volatile("nop; nop; nop");
		__llwpcb(NULL);
	}
	return INTERVAL - slot->counter;
}

int main(int argc, char **argv)
{
	struct lwp_capabilities capabilities;
	if (argc < 3 || lwp_query(&capabilities) != LWP_READY)
		return 2;
	on_alarm(tick);
	block.flags = LWP_FLAG(2);
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	slot = lwp_slot(&block, &capabilities, 2);
	slot->interval = INTERVAL;
	int handler = (send(SIGALRM) - send(0)) / CALIBRATION, quiet = toggle(), wrong = 0;
	seen = 0;
	alarm_every(atol(argv[2]));
	for (int round = 0; round < atoi(argv[1]); round++) {
		int before = seen, counted = toggle(), expected = quiet + handler * (seen - before);
		if (counted != expected && wrong++ < 5)
			fprintf(stderr, "round %d: %d, expected %d + %d * %d\n", round, counted, quiet, seen - before, handler);
	}
	printf("%d wrong\n", wrong);
	return wrong != 0 || seen == 0;
}
