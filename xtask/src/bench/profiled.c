/* Preloaded into a program that is measured: turns Lightweight Profiling on before its first instruction of its
 * own, and leaves it on. Under a processor without LWP it does nothing. The interval of both events comes from the
 * environment; the ring wraps, and nobody reads it. */
#include <lwp.h>
#include <stdlib.h>

enum { SLOTS = 4096 };

static struct lwp_control_block block;
static struct lwp_record ring[SLOTS];

static void count(const struct lwp_capabilities *lwp, unsigned event, uint32_t interval)
{
    block.flags |= LWP_FLAG(event);
    lwp_slot(&block, lwp, event)->interval = interval - 1;
}

__attribute__((constructor)) static void profile(void)
{
    struct lwp_capabilities lwp;
    const char *interval = getenv("PROFILED_INTERVAL");
    if (!interval || lwp_query(&lwp) != LWP_READY)
        return;
    block.flags = LWP_FLAG_CONTINUOUS;
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    count(&lwp, LWP_EVENT_INSTRUCTIONS_RETIRED, strtoul(interval, NULL, 10));
    count(&lwp, LWP_EVENT_BRANCHES_RETIRED, strtoul(interval, NULL, 10));
    __llwpcb(&block);
}
