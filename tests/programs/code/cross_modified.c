//@ variants: pie static
//@ cflags: -O1 -pthread
/* One thread changes code that others execute, in the ways the architecture allows: an aligned store
 * over one instruction's operand, a breakpoint byte put in and taken out, a retargeted jump. */
#include "check.h"

static unsigned char *page;
static atomic_int stop, wrong;
static _Atomic long calls;

static void *caller(void *argument)
{
    (void)argument;
    int (*run)(void) = (int (*)(void))(page + 64);
    int last = 0;
    do {
        int value = run();
        /* Only ever increases, and only by whole stores. */
        if (value < last || value % 0x10001 != 0)
            atomic_store(&wrong, value);
        last = value;
        atomic_fetch_add(&calls, 1);
    } while (!atomic_load(&stop));
    return NULL;
}

static void aligned_store(void)
{
    /* the immediate is at an address that is a multiple of four: nop nop nop mov eax, imm32; ret */
    memcpy(page + 64, "\x90\x90\x90\xb8\0\0\0\0\xc3", 9);
    pthread_t ids[3];
    stop = 0;
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&ids[i], NULL, caller, NULL) == 0);
    for (int i = 1; i <= 3000; i++) {
        *(volatile int *)(page + 68) = i * 0x10001;
        if (i % 100 == 0)
            usleep(100);
    }
    /* Every thread comes to see the last value. */
    double end = patience();
    int (*run)(void) = (int (*)(void))(page + 64);
    while (run() != 3000 * 0x10001 && now_seconds() < end)
        ;
    CHECK_EQ(run(), 3000 * 0x10001, "the last value");
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    CHECK_EQ(wrong, 0, "a value that was never stored");
    CHECK(calls > 0, "the threads ran");
}

static volatile int traps;
static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    traps++;
    /* Run the instruction that the breakpoint hides: nop. */
    CHECK_EQ(regs_of(context)[REG_RIP], (uintptr_t)page + 129, "rip after int3");
}

static void *looping(void *argument)
{
    void (*run)(void) = (void (*)(void))(page + 128);
    while (!atomic_load(&stop)) {
        run();
        atomic_fetch_add(&calls, 1);
    }
    return argument;
}

static void wait_for_calls(long more)
{
    long seen = calls;
    double end = patience();
    while (calls < seen + more && now_seconds() < end)
        usleep(50);
}

static void breakpoints(void)
{
    on_signal(SIGTRAP, on_trap, 0);
    memcpy(page + 128, "\x90\x90\xc3", 3);
    pthread_t id;
    stop = 0;
    calls = 0;
    MUST(pthread_create(&id, NULL, looping, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        int before = traps;
        *(volatile unsigned char *)(page + 128) = 0xcc;
        double end = patience();
        while (traps == before && now_seconds() < end)
            usleep(50);
        CHECK(traps > before, "breakpoint %d is hit", i);
        *(volatile unsigned char *)(page + 128) = 0x90;
        if (check_failures)
            break;
    }
    /* A trap may be on its way; who calls twice after that has handled it. */
    wait_for_calls(2);
    int after = traps;
    wait_for_calls(1000);
    CHECK_EQ(traps, after, "no trap after the last breakpoint is gone");
    stop = 1;
    pthread_join(id, NULL);
}

static void retargeted(void)
{
    /* A direct jump whose 32-bit displacement is aligned: what run-time linkers and tracers patch. */
    unsigned char *p = page + 256;
    memcpy(p, "\x90\x90\x90\xe9\0\0\0\0", 8);
    for (int i = 0; i < 8; i++) {
        memcpy(p + 64 + i * 16, "\xb8\0\0\0\0\xc3", 6);
        p[64 + i * 16 + 1] = i;
    }
    int (*run)(void) = (int (*)(void))p;
    for (int i = 0; i < 2000; i++) {
        *(volatile int *)(p + 4) = 64 + i % 8 * 16 - 8;
        CHECK_EQ(run(), i % 8, "round %d", i);
        if (check_failures)
            break;
    }
}

int main(void)
{
    page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    RUN(aligned_store);
    RUN(breakpoints);
    RUN(retargeted);
    return done();
}

/* Promise: F10 */
