/* The sequence of the published example of the intrinsics: a loop of 31 value samples, one record in
 * ten, with a programmed event at every seventh pass; first with 32-bit data, then with 64-bit data. The
 * ring begins three slots before its end. Prints what docs/lwp.md section 10 lists. */
#include <lwp.h>
#include <stdio.h>

enum { PASSES = 31, SLOTS = 4096 };

static struct lwp_control_block block;
static struct lwp_record ring[SLOTS];

int main(void)
{
    struct lwp_capabilities lwp;
    struct lwp_record record;
    int i, entries = 0, samples = 0, inserts = 0;
    if (lwp_query(&lwp) != LWP_READY) {
        printf("LWP is not available\n");
        return 1;
    }
    block.flags = LWP_FLAG(LWP_EVENT_VALUE_SAMPLE);
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    block.buffer_head_offset = block.buffer_tail_offset = sizeof ring - 3 * sizeof *ring;
    block.threshold = 2 * sizeof ring;
    lwp_slot(&block, &lwp, LWP_EVENT_VALUE_SAMPLE)->interval = 9;
    __llwpcb(&block);
    for (i = 0; i < PASSES; i++) {
        if (i % 7 == 0)
            __lwpins32(0xdeadbeef, i, 0x01234567);
        __lwpval32(0x0badf00d, i, 0xcad00cad);
    }
#ifdef __x86_64__
    for (i = 0; i < PASSES; i++) {
        if (i % 7 == 0)
            __lwpins64(0xdeadbeefdeadbeef, i, 0x01234567);
        __lwpval64(0x0badf00d0badf00d, i, 0xcad00cad);
    }
#endif
    __slwpcb();
    printf("flags %x head %u missed %u counter %u\n", (unsigned)block.flags, (unsigned)block.buffer_head_offset,
           (unsigned)block.missed_events, (unsigned)lwp_slot(&block, &lwp, 1)->counter);
    __llwpcb(NULL);
    while (lwp_next_record(&block, ring, &lwp, &record)) {
        char kind = record.event_id == LWP_EVENT_PROGRAMMED ? 'I' : record.event_id == LWP_EVENT_VALUE_SAMPLE ? 'V' : '?';
        entries++;
        samples += kind == 'V';
        inserts += kind == 'I';
        printf("%c%u %x %llx %llu\n", kind, (unsigned)record.data1, record.flags, (unsigned long long)record.data2,
               (unsigned long long)record.time_stamp);
    }
    printf("%d entries in ring buffer\n", entries);
    printf("%d LWPVAL instructions, %d LWPINS instructions\n", samples, inserts);
    return 0;
}
