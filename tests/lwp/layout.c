/* The header's structures against the offsets of docs/lwp.md, and every intrinsic by name. Prints the
 * records that the intrinsics made. */
#include <lwp.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#elif __STDC_VERSION__ >= 201112L
#define CHECK(condition) _Static_assert(condition, #condition)
#else
#define CHECK_NAME(line) check_##line
#define CHECK_AT(condition, line) typedef char CHECK_NAME(line)[(condition) ? 1 : -1]
#define CHECK(condition) CHECK_AT(condition, __LINE__)
#endif

#define AT(field, offset) (offsetof(struct lwp_control_block, field) == (offset))
#define AT2007(field, offset) (offsetof(struct lwp2007_control_block, field) == (offset))

CHECK(AT(flags, 0) && AT(buffer_size_random, 4) && AT(buffer_base, 8));
CHECK(AT(buffer_head_offset, 16) && AT(missed_events, 24) && AT(threshold, 32) && AT(filters, 36));
CHECK(AT(base_ip, 40) && AT(limit_ip, 48) && AT(buffer_tail_offset, 64) && AT(software, 72) && AT(events, 128));
CHECK(AT2007(buffer_base, 8) && AT2007(buffer_head_offset, 16) && AT2007(buffer_tail_offset, 20));
CHECK(AT2007(missed_events, 24) && AT2007(threshold, 32) && AT2007(filters, 36) && AT2007(events, 40));
CHECK(sizeof(struct lwp_record) == 32 && offsetof(struct lwp_record, data2) == 16);

static struct lwp_control_block block __attribute__((aligned(64)));
static unsigned char ring[4096] __attribute__((aligned(64)));

int main(void)
{
    struct lwp_capabilities lwp;
    struct lwp_record record;
    enum lwp_status status = lwp_query(&lwp);
    unsigned char full;
    if (status != LWP_READY) {
        printf("status %d\n", status);
        return 1;
    }
    if (lwp.record_bytes != 32 || lwp.event_offset != 128 || lwp.min_buffer_bytes > sizeof ring)
        return 2;
    block.flags = LWP_FLAG(LWP_EVENT_VALUE_SAMPLE);
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    if (__slwpcb() != NULL)
        return 3;
    __llwpcb(&block);
    if (__slwpcb() != &block)
        return 4;
    __lwpval32(0xbadf00du, 1, 0xcad0);
    full = __lwpins32(0xdeadbeefu, 2, 0x14567);
#ifdef __x86_64__
    __lwpval64(UINT64_C(0xbadf00d0badf00d), 3, 0xcad1);
    full |= __lwpins64(UINT64_C(0xdeadbeefdeadbeef), 4, 0x4568);
#endif
    __slwpcb();
    __llwpcb(NULL);
    if (__slwpcb() != NULL || full != 0)
        return 5;
    while (lwp_next_record(&block, ring, &lwp, &record))
        printf("%d %x %x %llx\n", record.event_id, record.flags, (unsigned)record.data1, (unsigned long long)record.data2);
    return block.buffer_tail_offset == block.buffer_head_offset ? 0 : 6;
}
