/* Byte 1 of a record is the processor that the thread was on, whoever makes the record: on every processor that it
 * may run on, records made in passing and, because they have time stamps, by asking. With an argument all are to
 * say 0. Prints how many records were right. */
#define _GNU_SOURCE
#include <lwp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static struct lwp_control_block block __attribute__((aligned(64)));
static unsigned char ring[4096] __attribute__((aligned(64)));

static int wrong;

static int with(unsigned flags, int expected)
{
    int i, right = 0;
    memset(&block, 0, sizeof block);
    block.flags = flags;
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    block.threshold = 1 << 20;
    __llwpcb(&block);
    for (i = 0; i < 3; i++) {
        __lwpins32(1, 2, 3);
        __lwpval32(4, 5, 6);
    }
    __llwpcb(0);
    for (i = 0; i < (int)(block.buffer_head_offset / 32); i++) {
        right += ring[32 * i + 1] == (expected & 0xff);
        wrong += ring[32 * i + 1] != (expected & 0xff);
    }
    return right;
}

int main(int count, char **words)
{
    cpu_set_t allowed, one;
    int processor, right = 0, processors = 0;
    (void)words;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (processor = 0; processor < CPU_SETSIZE; processor++) {
        if (!CPU_ISSET(processor, &allowed))
            continue;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0)
            return 2;
        processors++;
        right += with(1 << 1, count > 1 ? 0 : processor);
        right += with(1 << 1 | 1u << 30, count > 1 ? 0 : processor);
    }
    printf("%s, %d wrong\n", right == 12 * processors ? "all right" : "not all", wrong);
    return 0;
}
