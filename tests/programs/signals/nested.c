//@ cflags: -O1
/* Handlers interrupted by handlers: a chain of different signals, a fault inside a handler, recursion
 * with SA_NODEFER; each level returns to the one below with its state intact. */
#include "check.h"

static volatile int order[32], steps;
static void note(int what) { order[steps++ & 31] = what; }

static void third(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    note(number * 10);
    note(number * 10 + 9);
}
static void second(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    note(number * 10);
    raise(SIGTERM);
    note(number * 10 + 9);
}
static void first(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    note(number * 10);
    raise(SIGUSR2);
    note(number * 10 + 9);
}

static void chain(void)
{
    on_signal(SIGUSR1, first, 0);
    on_signal(SIGUSR2, second, 0);
    on_signal(SIGTERM, third, 0);
    steps = 0;
    raise(SIGUSR1);
    int want[] = {SIGUSR1 * 10, SIGUSR2 * 10, SIGTERM * 10, SIGTERM * 10 + 9, SIGUSR2 * 10 + 9, SIGUSR1 * 10 + 9};
    CHECK_EQ(steps, 6, "steps");
    for (int i = 0; i < 6; i++)
        CHECK_EQ(order[i], want[i], "step %d", i);
}

static char *page;
static void repair(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    note(1);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}
static void faulting(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    note(2);
    page[7] = 9;
    note(3);
}

static void fault_in_handler(void)
{
    page = map_pages(4096, PROT_NONE);
    on_signal(SIGSEGV, repair, 0);
    on_signal(SIGUSR1, faulting, 0);
    steps = 0;
    raise(SIGUSR1);
    CHECK_EQ(steps, 3, "steps");
    CHECK(order[0] == 2 && order[1] == 1 && order[2] == 3, "%d %d %d", order[0], order[1], order[2]);
    CHECK_EQ(page[7], 9, "the store was restarted");
}

static volatile int depth, deepest, runs;
static void recursive(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    volatile int canary = depth * 7 + 1;
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (++runs < 40)
        raise(number);
    depth--;
    CHECK_EQ(canary, depth * 7 + 1, "locals of level %d", depth);
}

static void recursion(int flags, int want_depth)
{
    on_signal(SIGUSR1, recursive, flags);
    depth = deepest = runs = 0;
    raise(SIGUSR1);
    CHECK_EQ(deepest, want_depth, "depth with flags %#x", flags);
    CHECK_EQ(runs, 40, "runs with flags %#x", flags);
}

static void deferred(void) { recursion(0, 1); }
static void not_deferred(void) { recursion(SA_NODEFER, 40); }

static volatile int ticks;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
    volatile unsigned sum = 0;
    for (unsigned i = 0; i < 3000; i++)
        sum += i;
    CHECK_EQ(sum, 3000u * 2999 / 2, "work in a handler");
}

static void storm(void)
{
    /* Three timers' worth of signals on top of each other. */
    on_signal(SIGALRM, tick, SA_NODEFER);
    on_signal(SIGVTALRM, tick, 0);
    on_signal(SIGPROF, tick, SA_NODEFER);
    struct itimerval timer = {{0, 1500}, {0, 1500}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
    setitimer(ITIMER_PROF, &timer, NULL);
    double end = patience();
    volatile unsigned long work = 0;
    while (ticks < 150 && now_seconds() < end)
        for (int i = 0; i < 1000; i++)
            work += i;
    setitimer(ITIMER_REAL, &off, NULL);
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    setitimer(ITIMER_PROF, &off, NULL);
    CHECK(ticks >= 150, "only %d signals", ticks);
}

int main(void)
{
    RUN(chain);
    RUN(fault_in_handler);
    RUN(deferred);
    RUN(not_deferred);
    RUN(storm);
    return done();
}

/* Promise: F8 */
