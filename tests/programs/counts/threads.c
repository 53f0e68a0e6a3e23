//@ variants: pie static
/* Threads whose counts do not depend on when they run: each works on what is its own, nobody waits for
 * anybody, and the process ends with whichever thread ends last. */
#include "check.h"

enum { THREADS = 6, WORDS = 2000 };

static struct own {
    unsigned words[WORDS];
    unsigned char stack[16384] __attribute__((aligned(64)));
} own[THREADS + 1];

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x < y ? -1 : x > y;
}

static void heap_sort(unsigned *words, int count, int (*order)(const void *, const void *))
{
    for (int start = count / 2, end = count; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            end--;
            unsigned last = words[end];
            words[end] = words[0];
            words[0] = last;
        }
        for (int root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && order(&words[child], &words[child + 1]) < 0)
                child++;
            if (order(&words[root], &words[child]) >= 0)
                break;
            unsigned other = words[root];
            words[root] = words[child];
            words[child] = other;
        }
    }
}

/* Runs without a C library underneath: it has no thread-local storage. */
__attribute__((noinline, optimize("no-stack-protector"))) static void work(long number)
{
    unsigned *words = own[number].words, state = (unsigned)number;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < WORDS; i++)
            words[i] = state = state * 1664525u + 1013904223u;
        heap_sort(words, WORDS, compare);
        for (int i = 1; i < WORDS; i++)
            if (words[i - 1] > words[i])
                __builtin_trap();
    }
    __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(0) : "rcx", "r11", "memory");
}

static long start_thread(long number)
{
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    void **top = (void **)(own[number].stack + sizeof own[number].stack - 64);
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("movq %[number], %%r12\n movq %[work], %%r13\n syscall\n"
                     "testl %%eax, %%eax\n jnz 1f\n movq %%r12, %%rdi\n call *%%r13\n1:\n"
                     : "=a"(result)
                     : "0"((long)SYS_clone), "D"(flags), "S"(top), "d"(0L), "r"(r10), "r"(r8),
                       [number] "r"(number), [work] "r"(work)
                     : "rcx", "r11", "r12", "r13", "memory", "cc");
    return result;
}

int main(void)
{
    for (long number = 0; number < THREADS; number++)
        MUST(start_thread(number) > 0);
    work(THREADS);
    return 1;
}
