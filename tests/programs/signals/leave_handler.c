//@ variants: pie static
//@ cflags: -O1
/* siglongjmp out of handlers: synchronous, asynchronous, from a system call, thousands of times; and
 * setcontext out of a handler. */
#include "check.h"

static sigjmp_buf back;
static volatile int jumps;

static void jump(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    jumps++;
    siglongjmp(back, jumps);
}

static void from_fault(void)
{
    on_signal(SIGSEGV, jump, 0);
    volatile int local = 0;
    for (int i = 0; i < 2000; i++) {
        jumps = 0;
        if (sigsetjmp(back, 1) == 0) {
            local++;
            *(volatile int *)(uintptr_t)(8 * i) = 1;
            CHECK(0, "the store to %d faults", 8 * i);
        }
        CHECK_EQ(jumps, 1, "one jump per fault");
    }
    CHECK_EQ(local, 2000, "iterations");
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGSEGV), "the mask is restored");
}

static volatile unsigned long work;
static volatile bool armed;
static void jump_if_armed(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    if (armed) {
        jumps++;
        siglongjmp(back, 1);
    }
}

__attribute__((noinline)) static unsigned long collatz(unsigned long n)
{
    return n == 1 ? 0 : 1 + collatz(n & 1 ? 3 * n + 1 : n / 2);
}

static void from_computation(void)
{
    on_signal(SIGALRM, jump_if_armed, 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
    jumps = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    if (sigsetjmp(back, 1) != 0 && jumps >= 300)
        goto out;
    armed = true;
    for (;;) {
        for (unsigned long n = 1; n < 1000; n++)
            work += collatz(n);
    }
out:
    armed = false;
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK_EQ(collatz(27), 111, "the computation still works");
}

static void from_system_call(void)
{
    on_signal(SIGALRM, jump_if_armed, SA_RESTART);
    struct itimerval timer = {{0, 2000}, {0, 2000}}, off = {0};
    int ends[2];
    MUST(pipe(ends) == 0);
    jumps = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    if (sigsetjmp(back, 1) == 0 || jumps < 50) {
        char byte;
        armed = true;
        (void)!read(ends[0], &byte, 1);
        CHECK(0, "read returned");
    }
    armed = false;
    setitimer(ITIMER_REAL, &off, NULL);
    /* Some may come in between the last jump and the end of the timer, on a busy machine. */
    CHECK(jumps >= 50, "%d jumps out of read", jumps);
}

static ucontext_t resume;
static volatile int phase;
static void set_context(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    setcontext(&resume);
}

static void by_setcontext(void)
{
    on_signal(SIGUSR1, set_context, 0);
    phase = 0;
    getcontext(&resume);
    if (phase++ < 100) {
        raise(SIGUSR1);
        CHECK(0, "the handler does not return");
    }
    CHECK_EQ(phase, 101, "rounds");
}

int main(void)
{
    RUN(from_fault);
    RUN(from_computation);
    RUN(from_system_call);
    RUN(by_setcontext);
    return done();
}

/* Promise: F8 */
