/* Lightweight Profiling (LWP) for C and C++: the intrinsics with their published names, and the layouts of
 * the memory that processor and program share.
 *
 *     #include <lwp_arch.h>
 *
 * <lwp.h> includes this header and declares the library. Nothing in this header needs the library.
 *
 * For GCC and Clang on x86; C99 or later, or C++11 or later. With -mlwp, these are the compiler's own
 * intrinsics; without it, the same names encode the instructions as bytes.
 *
 *     void          __llwpcb(void *block);                    load the control block; NULL ends profiling
 *     void         *__slwpcb(void);                           flush; the active control block, or NULL
 *     void          __lwpval32(uint32_t data2, uint32_t data1, CONSTANT flags);
 *     void          __lwpval64(uint64_t data2, uint32_t data1, CONSTANT flags);
 *     unsigned char __lwpins32(uint32_t data2, uint32_t data1, CONSTANT flags);    1: the ring was full
 *     unsigned char __lwpins64(uint64_t data2, uint32_t data1, CONSTANT flags);
 *
 * On a machine without LWP, these instructions raise an invalid opcode exception (SIGILL), so call
 * lwp_query() first. lwp_next_record() reads records; section 7 of docs/lwp.md describes how.
 *
 * Licence: MIT OR Apache-2.0. */
#ifndef LWP_ARCH_H
#define LWP_ARCH_H

#if !defined(__x86_64__) && !defined(__i386__)
#error "Lightweight Profiling exists on x86 only"
#endif

#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>
/* Comes before the macros below, so that they do not change the compiler's declarations. */
#include <x86intrin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Instructions ------------------------------------------------------------------------------- */

#ifndef __LWP__

/* The encodings, for assemblers and compilers that do not know LWP. rAX is Data2 or the control block, eCX
 * is Data1. The clobber is "memory" because the processor writes to the control block and the ring. */
static __inline__ void lwp_llwpcb(void *block)
{
#ifdef __x86_64__
    __asm__ __volatile__(".byte 0x8f,0xe9,0xf8,0x12,0xc0" : : "a"(block) : "memory");
#else
    __asm__ __volatile__(".byte 0x8f,0xe9,0x78,0x12,0xc0" : : "a"(block) : "memory");
#endif
}

static __inline__ void *lwp_slwpcb(void)
{
    void *block;
#ifdef __x86_64__
    __asm__ __volatile__(".byte 0x8f,0xe9,0xf8,0x12,0xc8" : "=a"(block) : : "memory");
#else
    __asm__ __volatile__(".byte 0x8f,0xe9,0x78,0x12,0xc8" : "=a"(block) : : "memory");
#endif
    return block;
}

#define LWP_INSERT_(prefix, modrm, data2, data1, flags, full)                                            \
    __asm__ __volatile__(".byte 0x8f,0xea," prefix ",0x12," modrm "; .long %c3; setc %0"                 \
                         : "=qm"(full) : "a"(data2), "c"((uint32_t)(data1)), "i"((uint32_t)(flags))      \
                         : "memory", "cc")
#define LWP_SAMPLE_(prefix, modrm, data2, data1, flags)                                                  \
    __asm__ __volatile__(".byte 0x8f,0xea," prefix ",0x12," modrm "; .long %c2"                          \
                         : : "a"(data2), "c"((uint32_t)(data1)), "i"((uint32_t)(flags)) : "memory")

/* Without optimisation, the compiler's header defines some of these as macros that don't compile here. */
#undef __llwpcb
#undef __slwpcb
#undef __lwpval32
#undef __lwpval64
#undef __lwpins32
#undef __lwpins64
#define __llwpcb(block) lwp_llwpcb(block)
#define __slwpcb() lwp_slwpcb()
#define __lwpval32(data2, data1, flags) LWP_SAMPLE_("0x78", "0xc9", (uint32_t)(data2), data1, flags)
#define __lwpins32(data2, data1, flags)                                                                  \
    __extension__({                                                                                      \
        unsigned char lwp_full_;                                                                         \
        LWP_INSERT_("0x78", "0xc1", (uint32_t)(data2), data1, flags, lwp_full_);                         \
        lwp_full_;                                                                                       \
    })
#ifdef __x86_64__
#define __lwpval64(data2, data1, flags) LWP_SAMPLE_("0xf8", "0xc9", (uint64_t)(data2), data1, flags)
#define __lwpins64(data2, data1, flags)                                                                  \
    __extension__({                                                                                      \
        unsigned char lwp_full_;                                                                         \
        LWP_INSERT_("0xf8", "0xc1", (uint64_t)(data2), data1, flags, lwp_full_);                         \
        lwp_full_;                                                                                       \
    })
#endif

#endif /* __LWP__ */

/* ---- LWP as in AMD's processors: publication 43724 -------------------------------------------------- */

/* EventIds, byte 0 of a record. */
#define LWP_EVENT_VALUE_SAMPLE 1
#define LWP_EVENT_INSTRUCTIONS_RETIRED 2
#define LWP_EVENT_BRANCHES_RETIRED 3
#define LWP_EVENT_DCACHE_MISSES 4
#define LWP_EVENT_CORE_CLOCKS 5
#define LWP_EVENT_REFERENCE_CLOCKS 6
#define LWP_EVENT_PROGRAMMED 255

/* Flags of a control block; also feature bits of CPUID 8000_001C, EAX (enabled) and EDX (present). */
#define LWP_AVAILABLE (UINT32_C(1) << 0) /* CPUID only */
#define LWP_FLAG(event) (UINT32_C(1) << (event))
#define LWP_FLAG_CONTINUOUS (UINT32_C(1) << 29)
#define LWP_FLAG_TIME_STAMPS (UINT32_C(1) << 30)
#define LWP_FLAG_INTERRUPT (UINT32_C(1) << 31)

/* Filters of a control block. */
#define LWP_FILTER_MIN_LATENCY(cycles) ((uint32_t)((cycles) / 16) & 0xff)
#define LWP_FILTER_CLF (UINT32_C(1) << 8)  /* only misses from the sources of the next four */
#define LWP_FILTER_NBC (UINT32_C(1) << 9)  /* northbridge cache */
#define LWP_FILTER_RDC (UINT32_C(1) << 10) /* remote cache */
#define LWP_FILTER_RAM (UINT32_C(1) << 11) /* memory */
#define LWP_FILTER_OTH (UINT32_C(1) << 12) /* anything else */
#define LWP_FILTER_NMB (UINT32_C(1) << 25) /* drop mispredicted branches */
#define LWP_FILTER_NPB (UINT32_C(1) << 26) /* drop correctly predicted branches */
#define LWP_FILTER_NAB (UINT32_C(1) << 27) /* drop absolute branches */
#define LWP_FILTER_NCB (UINT32_C(1) << 28) /* drop conditional branches */
#define LWP_FILTER_NRB (UINT32_C(1) << 29) /* drop unconditional relative branches */
#define LWP_FILTER_IPI (UINT32_C(1) << 30) /* with IPF: only those outside */
#define LWP_FILTER_IPF (UINT32_C(1) << 31) /* only instructions from base_ip to limit_ip */

/* Flags of a branch record, in its 16-bit field. */
#define LWP_BRANCH_PREDICTION_VALID 0x2000
#define LWP_BRANCH_PREDICTED 0x4000
#define LWP_BRANCH_TAKEN 0x8000
/* Flags of a data-cache miss record. */
#define LWP_DCACHE_ADDRESS_VALID 0x1000
#define LWP_DCACHE_SOURCE(flags) ((flags) >> 13)

/* The control block below has slots for this many EventIds; CPUID reports how many the processor has. */
#define LWP_MAX_EVENTS 24

/* Interval and counter of one event, signed numbers of 26 bits. The processor makes a record at every
 * (interval + 1)-th occurrence. */
struct lwp_event_slot {
    uint32_t interval;
    uint32_t counter;
};

/* The control block. All known processors have the first event slot at byte 128; lwp_slot() uses the
 * offset that CPUID reports. */
struct lwp_control_block {
    uint32_t flags;              /* 0: set by the program: wanted; by the processor: granted */
    uint32_t buffer_size_random; /* 4: bytes in 27:0, number of random bits in 31:28 */
    uint64_t buffer_base;        /* 8 */
    uint32_t buffer_head_offset; /* 16: set by the processor: where the next record goes */
    uint32_t reserved_20;
    uint64_t missed_events;      /* 24: set by the processor */
    uint32_t threshold;          /* 32: bytes */
    uint32_t filters;            /* 36 */
    uint64_t base_ip;            /* 40 */
    uint64_t limit_ip;           /* 48 */
    uint64_t reserved_56;
    uint32_t buffer_tail_offset; /* 64: set by the program: the oldest unread record */
    uint32_t reserved_68;
    uint64_t software[2];        /* 72: free for the program */
    uint64_t reserved_88[5];
    struct lwp_event_slot events[LWP_MAX_EVENTS]; /* 128: EventId 1 first */
};

/* A record. */
struct lwp_record {
    uint8_t event_id;
    uint8_t core_id;
    uint16_t flags;
    uint32_t data1;
    uint64_t instruction_address;
    uint64_t data2;
    uint64_t time_stamp; /* 0 unless time stamps were granted */
};

/* ---- The form proposed in 2007 --------------------------------------------------------------------- */

#define LWP2007_EVENT_INSTRUCTIONS_RETIRED 1
#define LWP2007_EVENT_BRANCHES_RETIRED 2
#define LWP2007_EVENT_DCACHE_MISSES 3

/* Flags. The processor writes all of them except LWP2007_FLAG_INTERRUPT. */
#define LWP2007_FLAG_ENABLED (UINT32_C(1) << 0)
#define LWP2007_FLAG(event) (UINT32_C(1) << (event))
#define LWP2007_FLAG_INTERRUPT (UINT32_C(1) << 31)
#define LWP2007_FILTER_NDB (UINT32_C(1) << 13) /* drop direct jumps; bits 12:0 are as in 43724 */

/* Bits 25:0 of the first word are the interval, 31:26 the EventId; bits 25:0 of the second the counter. */
struct lwp2007_event_slot {
    uint32_t interval_event_id;
    uint32_t counter;
};

/* The control block, aligned to 16 bytes. The ring is aligned to 32. */
struct lwp2007_control_block {
    uint32_t flags;
    uint32_t buffer_size_random;
    uint64_t buffer_base;
    uint32_t buffer_head_offset;
    uint32_t buffer_tail_offset;
    uint64_t missed_events;
    uint32_t threshold;
    uint32_t filters;
    struct lwp2007_event_slot events[LWP_MAX_EVENTS]; /* 40 */
};

/* ---- Detecting and reading ------------------------------------------------------------------------- */

/* What CPUID reports. */
struct lwp_capabilities {
    uint32_t enabled;          /* LWP_FLAG...: what a control block can be granted */
    uint32_t present;          /* LWP_FLAG...: what the processor has */
    uint32_t block_bytes;      /* length of the control block */
    uint32_t record_bytes;     /* length of a record */
    uint32_t max_events;       /* number of event slots */
    uint32_t event_offset;     /* byte offset of the first slot */
    uint32_t min_buffer_bytes; /* smallest ring */
    uint32_t filters;          /* bits 31 latency, 30 cache levels, 29 addresses, 28 prediction */
    uint32_t version;
};

enum lwp_status {
    LWP_READY = 0,       /* the instructions can be used */
    LWP_NOT_PRESENT = 1, /* this processor has no LWP */
    LWP_NOT_ENABLED = 2, /* the system has not switched it on */
    LWP_FORM_OF_2007 = 3 /* it has the form proposed in 2007; the functions below don't apply */
};

/* Queries CPUID, and fills in `capabilities` if the result is LWP_READY. Executes no LWP instruction. */
static __inline__ enum lwp_status lwp_query(struct lwp_capabilities *capabilities)
{
    unsigned int a, b, c, d;
    if (__get_cpuid_max(0x80000000, NULL) < 0x8000001c)
        return LWP_NOT_PRESENT;
    __cpuid_count(0x80000001, 0, a, b, c, d);
    if (!(c >> 15 & 1))
        return LWP_NOT_PRESENT;
    __cpuid_count(0x8000001c, 0, a, b, c, d);
    if (b >> 24 < 88) /* LWPVersion in the form of 2007; else the first slot's offset, behind the other fields */
        return LWP_FORM_OF_2007;
    if (!(a & LWP_AVAILABLE))
        return LWP_NOT_ENABLED;
    capabilities->enabled = a & ~LWP_AVAILABLE;
    capabilities->present = d & ~LWP_AVAILABLE;
    capabilities->block_bytes = (b & 0xff) * 8;
    capabilities->record_bytes = b >> 8 & 0xff;
    capabilities->max_events = b >> 16 & 0xff;
    capabilities->event_offset = b >> 24;
    capabilities->min_buffer_bytes = (c >> 16 & 0xff) * 32 * capabilities->record_bytes;
    capabilities->filters = c & UINT32_C(0xf0000000);
    capabilities->version = c >> 9 & 0x7f;
    return LWP_READY;
}

/* Returns the slot of an EventId from 1 to max_events. */
static __inline__ struct lwp_event_slot *lwp_slot(struct lwp_control_block *block,
                                                  const struct lwp_capabilities *capabilities, unsigned int event)
{
    return (struct lwp_event_slot *)((char *)block + capabilities->event_offset) + (event - 1);
}

/* Copies the oldest unread record to `record`, and frees its place in the ring. Returns 1, or 0 if there is
 * none. `ring` is the memory that buffer_base points to. Only one thread may read at a time. If it is
 * the profiled thread itself, call __slwpcb() first. */
static __inline__ int lwp_next_record(struct lwp_control_block *block, const void *ring,
                                      const struct lwp_capabilities *capabilities, struct lwp_record *record)
{
    uint32_t size = block->buffer_size_random & UINT32_C(0x0fffffff);
    uint32_t head = __atomic_load_n(&block->buffer_head_offset, __ATOMIC_ACQUIRE);
    uint32_t tail = block->buffer_tail_offset;
    if (head == tail)
        return 0;
    __builtin_memcpy(record, (const char *)ring + tail, sizeof *record);
    tail += capabilities->record_bytes;
    if (tail + capabilities->record_bytes > size)
        tail = 0;
    __atomic_store_n(&block->buffer_tail_offset, tail, __ATOMIC_RELEASE);
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif /* LWP_ARCH_H */
