//@ variants: pie static
//@ cflags: -O2
/* Timers that fire faster than anybody can handle: the program goes on between two signals, whatever their kind and
 * wherever they come, and what it does of itself is not disturbed. */
#include "check.h"

static volatile long ticks;

static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

static uint64_t work(long turns)
{
    uint64_t x = 88172645463325252u;
    for (volatile long i = 0; i < turns; i++)
        x = x * 6364136223846793005u + (uint64_t)i;
    return x;
}

static void by_interval(void)
{
    uint64_t want = work(1000000);
    on_signal(SIGALRM, tick, SA_RESTART);
    for (int us = 50; us >= 20; us -= 15) {
        struct itimerval timer = {{0, us}, {0, us}}, off = {0};
        MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        uint64_t got = work(1000000);
        MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
        CHECK_EQ(got, want, "every %d us", us);
        long before = ticks;
        work(1000);
        CHECK_EQ(ticks, before, "the timer is off: a signal came late");
    }
}

static void by_timer(int signal, int flags, void (*handler)(int, siginfo_t *, void *))
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec timer = {{0, 20000}, {0, 20000}};
    timer_t id;
    uint64_t want = work(300000);
    on_signal(signal, handler, SA_RESTART | flags);
    MUST(timer_create(CLOCK_MONOTONIC, &event, &id) == 0);
    MUST(timer_settime(id, 0, &timer, NULL) == 0);
    uint64_t got = work(300000);
    MUST(timer_delete(id) == 0);
    CHECK_EQ(got, want, "signal %d", signal);
}

static void by_posix_timers(void)
{
    by_timer(SIGUSR1, 0, tick);
    by_timer(SIGRTMIN + 1, 0, tick);
}

/* Another process signals as fast as it can. */
static void by_another_process(void)
{
    uint64_t want = work(300000);
    on_signal(SIGUSR1, tick, SA_RESTART);
    pid_t me = getpid(), child = fork();
    MUST(child >= 0);
    if (child == 0)
        for (;;)
            if (kill(me, SIGUSR1) != 0 || getppid() != me)
                _exit(0);
    uint64_t got = work(300000);
    MUST(kill(child, SIGKILL) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    CHECK_EQ(got, want, "beside another process");
}

/* A signal that comes before a call is handled before it. */
static void before_calls(void)
{
    struct itimerval timer = {{0, 20}, {0, 20}}, off = {0};
    on_signal(SIGALRM, tick, SA_RESTART);
    for (int i = 0; i < 100; i++) {
        MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        work(2000);
        MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
        MUST(signal(SIGALRM, SIG_DFL) != SIG_ERR);
        work(1000);
        on_signal(SIGALRM, tick, SA_RESTART);
    }
}

static volatile long raised;

static void count(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    raised++;
}

/* Calls come to an end beside such a timer, even if they are more than a system call of the thread's own, and so do
 * handlers that have been interrupted. */
static void beside_calls(void)
{
    static const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3}; /* mov $7, %eax; ret */
    struct itimerval off = {0};
    on_signal(SIGALRM, tick, SA_RESTART);
    for (int us = 50; us >= 20; us -= 15) {
        struct itimerval timer = {{0, us}, {0, us}};
        raised = 0;
        MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        for (int i = 0; i < 50; i++) {
            MUST(signal(SIGUSR2, i % 2 ? SIG_IGN : SIG_DFL) != SIG_ERR);
            on_signal(SIGUSR1, count, SA_RESTART);
            MUST(raise(SIGUSR1) == 0);
            MUST(syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGUSR1) == 0);
            unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            MUST(page != MAP_FAILED);
            memcpy(page, code, sizeof code);
            CHECK_EQ(((int (*)(void))page)(), 7, "generated, every %d us", us);
            MUST(munmap(page, 4096) == 0);
        }
        MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
        CHECK_EQ(raised, 100, "every %d us", us);
    }
}

int main(void)
{
    RUN(by_interval);
    RUN(by_posix_timers);
    RUN(by_another_process);
    RUN(before_calls);
    RUN(beside_calls);
    return done();
}

/* Promise: F8 */
