/* The threshold interrupt as an eventfd: a thread that sleeps on it drains the ring while another one fills
 * it. Arguments: rounds, and the descriptor that the virtual CPU was told; with a third one there is no
 * eventfd, and the program drains the ring itself. */
#define _GNU_SOURCE
#include <lwp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RECORDS = 1024, THRESHOLD = 32 };

static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[RECORDS] __attribute__((aligned(64)));
static unsigned last, wrong;
static unsigned long drained;
/* Added to the eventfd when there is no more to come. */
static const uint64_t END = 1ull << 32;

static void drain(void)
{
	unsigned head = *(volatile unsigned *)&block.buffer_head_offset;
	unsigned tail = block.buffer_tail_offset;
	for (; tail != head; tail = (tail + sizeof *ring) % sizeof ring) {
		const struct lwp_record *record = &ring[tail / sizeof *ring];
		wrong += record->event_id != 255 || record->data1 != last + 1;
		last = record->data1;
		drained++;
	}
	*(volatile unsigned *)&block.buffer_tail_offset = tail;
}

static void *drainer(void *argument)
{
	int descriptor = *(int *)argument;
	uint64_t wakings = 0, count;
	while (wakings < END && read(descriptor, &count, sizeof count) == sizeof count) {
		wakings += count;
		drain();
	}
	return (void *)(uintptr_t)wakings;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
	int descriptor = argc > 2 ? atoi(argv[2]) : 100;
	struct lwp_capabilities capabilities;
	if (lwp_query(&capabilities) != LWP_READY)
		return 2;
	int alone = argc > 3;
	if (!alone && dup2(eventfd(0, 0), descriptor) != descriptor)
		return 3;
	pthread_t thread;
	if (!alone && pthread_create(&thread, NULL, drainer, &descriptor) != 0)
		return 4;
	block.flags = 1u << 31;
	block.buffer_size_random = sizeof ring;
	block.buffer_base = (uint64_t)(uintptr_t)ring;
	block.threshold = THRESHOLD * sizeof *ring;
	__llwpcb(&block);
	for (unsigned round = 1; round <= rounds; round++) {
		/* The drainer is woken by the threshold and by nothing else. */
		while (!alone && (round - 1) % THRESHOLD == 0 &&
		       block.buffer_head_offset != *(volatile unsigned *)&block.buffer_tail_offset)
			usleep(50);
		wrong += __lwpins32(7, round, 5);
		if (alone && round % 100 == 0)
			drain();
	}
	__llwpcb(NULL);
	if (alone) {
		drain();
		printf("%lu drained, %u wrong\n", drained, wrong);
		return wrong != 0;
	}
	wrong += write(descriptor, &END, sizeof END) != sizeof END;
	void *wakings;
	pthread_join(thread, &wakings);
	drain();
	printf("%lu drained, %lu wakings, %u wrong, missed %llu\n", drained,
	       (unsigned long)((uintptr_t)wakings - END), wrong, (unsigned long long)block.missed_events);
	return wrong != 0;
}
