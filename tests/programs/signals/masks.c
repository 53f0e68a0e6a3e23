//@ cflags: -O1
/* Blocking, pending, and delivery when unblocked; sa_mask; queued real-time signals in order. */
#include "check.h"

static volatile int seen[64], order[64], count;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen[number]++;
    if (count < 64)
        order[count] = number == SIGRTMIN + 1 ? info->si_value.sival_int : number;
    count++;
}

static sigset_t set_of(int a, int b)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, a);
    if (b)
        sigaddset(&set, b);
    return set;
}

static void reset(void)
{
    memset((void *)seen, 0, sizeof seen);
    count = 0;
}

static void blocked(void)
{
    on_signal(SIGUSR1, handler, 0);
    on_signal(SIGUSR2, handler, 0);
    sigset_t both = set_of(SIGUSR1, SIGUSR2), old, pending;
    reset();
    sigprocmask(SIG_BLOCK, &both, &old);
    for (int i = 0; i < 5; i++)
        raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    CHECK_EQ(count, 0, "nothing is delivered while blocked");
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2), "both are pending");
    sigset_t one = set_of(SIGUSR1, 0);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    CHECK_EQ(seen[SIGUSR1], 1, "standard signals do not queue");
    CHECK_EQ(seen[SIGUSR2], 0, "the other is still blocked");
    sigprocmask(SIG_SETMASK, &old, NULL);
    CHECK_EQ(seen[SIGUSR2], 1, "delivered by the mask's restoration, before the call returns");
    sigpending(&pending);
    CHECK(!sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGUSR2), "nothing is pending");
}

static volatile bool inner_blocked;
static void masking(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    raise(SIGUSR2);
    inner_blocked = seen[SIGUSR2] == 0;
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    CHECK(sigismember(&mask, number), "the signal is blocked in its own handler");
    CHECK(sigismember(&mask, SIGUSR2), "sa_mask is blocked in the handler");
    CHECK(sigismember(&((ucontext_t *)context)->uc_sigmask, SIGHUP), "uc_sigmask is the old mask");
}

static void handler_mask(void)
{
    struct sigaction action = {.sa_sigaction = masking, .sa_flags = SA_SIGINFO, .sa_mask = set_of(SIGUSR2, 0)};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t hup = set_of(SIGHUP, 0), mask;
    sigprocmask(SIG_BLOCK, &hup, NULL);
    reset();
    raise(SIGUSR1);
    CHECK(inner_blocked, "SIGUSR2 waits for the handler's end");
    CHECK_EQ(seen[SIGUSR2], 1, "and is delivered then");
    sigprocmask(SIG_BLOCK, NULL, &mask);
    CHECK(sigismember(&mask, SIGHUP) && !sigismember(&mask, SIGUSR1), "the mask is restored");
}

static void realtime(void)
{
    on_signal(SIGRTMIN + 1, handler, 0);
    sigset_t set = set_of(SIGRTMIN + 1, 0);
    sigprocmask(SIG_BLOCK, &set, NULL);
    reset();
    for (int i = 0; i < 30; i++)
        MUST(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i * 3}) == 0);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK_EQ(count, 30, "real-time signals queue");
    for (int i = 0; i < 30; i++)
        CHECK_EQ(order[i], i * 3, "in order, with their values");
}

static void change_mask_by_context(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGWINCH);
}

static void mask_in_context(void)
{
    on_signal(SIGUSR1, change_mask_by_context, 0);
    raise(SIGUSR1);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    CHECK(sigismember(&mask, SIGWINCH), "the handler's change to uc_sigmask takes effect");
}

static void all_blocked(void)
{
    /* What C libraries do around fork and thread creation. */
    sigset_t all, old, now;
    sigfillset(&all);
    reset();
    on_signal(SIGUSR2, handler, 0);
    for (int i = 0; i < 200; i++) {
        sigprocmask(SIG_BLOCK, &all, &old);
        raise(SIGUSR2);
        CHECK_EQ(seen[SIGUSR2], i, "blocked");
        sigprocmask(SIG_SETMASK, &old, NULL);
        CHECK_EQ(seen[SIGUSR2], i + 1, "delivered");
    }
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(memcmp(&now, &old, 8) == 0, "the mask is restored");
    sigprocmask(SIG_BLOCK, &all, &old);
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(!sigismember(&now, SIGKILL) && !sigismember(&now, SIGSTOP), "these cannot be blocked");
    CHECK(sigismember(&now, SIGTRAP) && sigismember(&now, SIGSEGV), "these can");
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void disposition_survives(void)
{
    /* New code runs for the first time while everything is blocked: a translator that stops by
     * signals here would reset a disposition or a mask. */
    on_signal(SIGTRAP, handler, 0);
    on_signal(SIGSEGV, handler, 0);
    on_signal(SIGILL, handler, 0);
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    char text[200];
    snprintf(text, sizeof text, "%La %e %s %#o %ls", 1.5L, 2.5e10, "x", 77, L"wide");
    qsort(text, strlen(text), 1, (int (*)(const void *, const void *))strcoll);
    sigset_t during;
    sigprocmask(SIG_BLOCK, NULL, &during);
    CHECK(sigismember(&during, SIGTRAP) && sigismember(&during, SIGSEGV), "still blocked");
    sigprocmask(SIG_SETMASK, &old, NULL);
    for (int number = 1; number < 32; number++) {
        struct sigaction action;
        sigaction(number, NULL, &action);
        if (number == SIGTRAP || number == SIGSEGV || number == SIGILL)
            CHECK(action.sa_sigaction == handler, "disposition of %d", number);
    }
    signal(SIGTRAP, SIG_DFL), signal(SIGSEGV, SIG_DFL), signal(SIGILL, SIG_DFL);
}

int main(void)
{
    RUN(blocked);
    RUN(handler_mask);
    RUN(realtime);
    RUN(mask_in_context);
    RUN(all_blocked);
    RUN(disposition_survives);
    return done();
}

/* Promise: F8 */
