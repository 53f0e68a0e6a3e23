/* Every hundredth branch of a loop, with where it went.
 *
 *     gcc -O1 -Iinclude examples/branches.c -o branches
 *     lwp run -- ./branches
 */
#include <lwp.h>
#include <stdio.h>

enum { RING_BYTES = 64 * 1024, EVERY = 100 };

static struct lwp_control_block block __attribute__((aligned(64)));
static unsigned char ring[RING_BYTES] __attribute__((aligned(64)));

/* Steps of the Collatz sequence from n to 1. */
static unsigned steps(unsigned long n)
{
    unsigned count = 0;
    for (; n != 1; count++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return count;
}

int main(void)
{
    struct lwp_capabilities lwp;
    struct lwp_record record;
    struct lwp_event_slot *slot;
    unsigned long n, longest = 1;
    unsigned records = 0, taken = 0;

    switch (lwp_query(&lwp)) {
    case LWP_READY:
        break;
    case LWP_NOT_PRESENT:
        fprintf(stderr, "this processor has no Lightweight Profiling; under `lwp run` it would\n");
        return 1;
    case LWP_NOT_ENABLED:
        fprintf(stderr, "the system has not enabled Lightweight Profiling\n");
        return 1;
    case LWP_FORM_OF_2007:
        fprintf(stderr, "this processor has Lightweight Profiling in the form proposed in 2007\n");
        return 1;
    }
    if (!(lwp.enabled & LWP_FLAG(LWP_EVENT_BRANCHES_RETIRED)) || lwp.min_buffer_bytes > RING_BYTES) {
        fprintf(stderr, "this processor cannot record branches into %d bytes\n", RING_BYTES);
        return 1;
    }
    block.flags = LWP_FLAG(LWP_EVENT_BRANCHES_RETIRED);
    block.buffer_size_random = RING_BYTES;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    slot = lwp_slot(&block, &lwp, LWP_EVENT_BRANCHES_RETIRED);
    slot->interval = slot->counter = EVERY - 1;

    __llwpcb(&block);
    for (n = 1; n < 300; n++)
        if (steps(n) > steps(longest))
            longest = n;
    __llwpcb(NULL);

    while (lwp_next_record(&block, ring, &lwp, &record)) {
        int was_taken = (record.flags & LWP_BRANCH_TAKEN) != 0;
        if (records < 3)
            printf("%#llx -> %#llx%s\n", (unsigned long long)record.instruction_address,
                   (unsigned long long)record.data2, was_taken ? "" : " (not taken)");
        records++;
        taken += was_taken;
    }
    printf("%u records, %u of branches that were taken, %llu lost; longest %lu\n", records, taken,
           (unsigned long long)block.missed_events, longest);
    return 0;
}
