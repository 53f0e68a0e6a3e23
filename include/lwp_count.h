/* Markers for exact counting: with them, a program chooses the part that `lwp stat --marked` and `lwp record --marked`
 * count, or reads its own counts. For C and C++, x86-64, GCC and clang; there is no library to link with.
 *
 *     #include <lwp_count.h>
 *
 *     lwp_count_start();
 *     work();
 *     lwp_count_stop();
 *
 * A marker is one instruction that does nothing on a processor and under Valgrind. Under lwp it stops the thread for a
 * moment, with every count exact: lwp counts each instruction between two markers, but not the markers.
 *
 * Licence: MIT OR Apache-2.0. */
#ifndef LWP_COUNT_H
#define LWP_COUNT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of events. */
enum lwp_count_event {
    LWP_COUNT_INSTRUCTIONS = 0,         /* a repeated string instruction is one */
    LWP_COUNT_BRANCHES = 1,             /* near branches of every kind */
    LWP_COUNT_BRANCHES_TAKEN = 2,
    LWP_COUNT_CONDITIONAL_BRANCHES = 3,
    LWP_COUNT_CONDITIONAL_TAKEN = 4,
    LWP_COUNT_CALLS = 5,
    LWP_COUNT_RETURNS = 6,
    LWP_COUNT_INDIRECT_BRANCHES = 7     /* jumps and calls */
};

#if defined(__x86_64__) && defined(__GNUC__)

#define LWP_COUNT_INLINE static inline __attribute__((always_inline, unused))
/* nop dword ptr [rax + disp32], with LWP and a code in its displacement. */
#define LWP_COUNT_MARKER(code) ".byte 0x0f, 0x1f, 0x80, 0x4c, 0x57, 0x50, " #code

/* Starts counting in all threads of this process, under --marked. */
LWP_COUNT_INLINE void lwp_count_start(void)
{
    __asm__ volatile(LWP_COUNT_MARKER(1) ::: "memory");
}

/* Stops counting in all threads of this process, under --marked. */
LWP_COUNT_INLINE void lwp_count_stop(void)
{
    __asm__ volatile(LWP_COUNT_MARKER(2) ::: "memory");
}

/* Begins a region of this thread, for lwp_count_since(). A thread has one region at a time. */
LWP_COUNT_INLINE void lwp_count_begin(void)
{
    __asm__ volatile(LWP_COUNT_MARKER(4) ::: "memory");
}

/* Instructions of a reading before its marker. */
#define LWP_COUNT_SET_UP(event) ((event) == LWP_COUNT_INSTRUCTIONS ? 3u : 0u)
#define LWP_COUNT_READING(code)                                                                                   \
    "xor %%eax, %%eax\n\t"                                                                                        \
    "xor %%edx, %%edx\n\t"                                                                                        \
    "mov %2, %%edi\n\t" LWP_COUNT_MARKER(code)

/* Stores in *count how many events this thread has executed since lwp_count_begin(), and returns 1. If nothing counts
 * (natively, under `lwp run`, and in sampled recordings), stores 0 and returns 0. */
LWP_COUNT_INLINE int lwp_count_since(enum lwp_count_event event, uint64_t *count)
{
    uint64_t value, counted;
    __asm__ volatile(LWP_COUNT_READING(5) : "=&a"(value), "=&d"(counted) : "r"((uint32_t)event) : "rdi", "cc", "memory");
    *count = counted && value >= LWP_COUNT_SET_UP(event) ? value - LWP_COUNT_SET_UP(event) : 0;
    return counted != 0;
}

/* Stores in *count how many events this thread has executed since it began; returns as lwp_count_since(). */
LWP_COUNT_INLINE int lwp_count_read(enum lwp_count_event event, uint64_t *count)
{
    uint64_t value, counted;
    __asm__ volatile(LWP_COUNT_READING(3) : "=&a"(value), "=&d"(counted) : "r"((uint32_t)event) : "rdi", "cc", "memory");
    *count = counted && value >= LWP_COUNT_SET_UP(event) ? value - LWP_COUNT_SET_UP(event) : 0;
    return counted != 0;
}

#else
#error "lwp counts x86-64 programs, and its markers need the assembler of GCC or clang"
#endif

#ifdef __cplusplus
}
#endif

#endif
