/* Two threads on one processor count by restartable sequences, or by atomic instructions if they
   have no area. A sequence is so long that a thread is nearly always preempted inside. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

struct area { uint32_t cpu_start; volatile int32_t cpu; volatile uint64_t section; uint32_t rest[4]; };

static _Thread_local struct area area __attribute__((aligned(32)));
static volatile uint64_t shared, atomic, total;
static volatile int over, has_area[2], begun[2];

/* True if the section has not been aborted. */
static int count_once(void)
{
    int done = 0;
    __asm__ volatile(
        ".pushsection SECTION\n.balign 32\n"
        "1: .long 0, 0\n.quad 2f, 3f - 2f, 4f\n"
        ".popsection\n"
        "leaq 1b(%%rip), %%rax\n movq %%rax, %[section]\n"
        "2: cmpl $0, %[cpu]\n js 4f\n"
        "movq %[shared], %%rax\n movl $500, %%ecx\n"
        "5: decl %%ecx\n jnz 5b\n"
        "incq %%rax\n movq %%rax, %[shared]\n"
        "3: movl $1, %[done]\n jmp 6f\n"
        ".long 0x53053053\n"
        "4: \n"
        "6: movq $0, %[section]\n"
        : [done] "+r"(done), [section] "+m"(area.section), [shared] "+m"(shared)
        : [cpu] "m"(area.cpu)
        : "rax", "rcx", "memory", "cc");
    return done;
}

static void *count(void *number)
{
    uint64_t counted = 0;
    area.cpu = -1;
    syscall(SYS_rseq, &area, sizeof area, 0, 0x53053053);
    for (; !over; counted++) {
        int done = 0;
        while (!done && area.cpu >= 0)
            done = count_once();
        if (!done)
            __atomic_add_fetch(&atomic, 1, __ATOMIC_RELAXED);
        has_area[(intptr_t)number] = area.cpu >= 0;
        begun[(intptr_t)number] = 1;
    }
    __atomic_add_fetch(&total, counted, __ATOMIC_RELAXED);
    return 0;
}

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    pthread_t threads[2];
    cpu_set_t all, one;
    int first = 0;
    sched_getaffinity(0, sizeof all, &all);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, count, (void *)i);
    while (!begun[0] || !begun[1])
        usleep(1000);
    puts(has_area[0] && has_area[1] ? "areas" : "no areas");
    fflush(stdout);
    poll(&input, 1, -1);
    over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("%s, %s\n", has_area[0] && has_area[1] ? "areas" : "no areas",
           shared + atomic == total ? "all counted" : "some lost");
    return 0;
}
