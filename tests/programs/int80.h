/* Calls of 32-bit programs, which INT 0x80 makes. Where the kernel has none it faults, and each of them counts as refused. */
#ifndef INT80_H
#define INT80_H

#include "check.h"

/* Where the last attempt began that a fault ends. */
static sigjmp_buf attempt;

/* Ends what has been attempted. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    siglongjmp(attempt, 1);
}

/* Result of the call with this number; its sixth argument is 0. */
__attribute__((unused)) static long call32(int number, uintptr_t one, uintptr_t two, uintptr_t three, uintptr_t four, uintptr_t five)
{
    long result;
    if (sigsetjmp(attempt, 1))
        return -38;
    asm volatile("push %%rbp; xor %%ebp, %%ebp; int $0x80; pop %%rbp"
                 : "=a"(result)
                 : "a"(number), "b"(one), "c"(two), "d"(three), "S"(four), "D"(five)
                 : "r8", "r9", "r10", "r11", "memory", "cc");
    return (int)result;
}

/* Memory of so many bytes that addresses of 32 bits reach, filled with zeros. */
__attribute__((unused)) static void *low_memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

#endif
