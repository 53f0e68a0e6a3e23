//@ cflags: -O1
/* One thread ignores a signal, sends it to another one, and goes back to the default or to a handler: what was sent
 * while it was ignored is gone, however late the other thread would have taken it. */
#include "check.h"

static atomic_int begun, over, handled;

static void on_usr1(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void send(int how)
{
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    if (how == 0)
        MUST(syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1) == 0);
    else if (how == 1)
        MUST(kill(getpid(), SIGUSR1) == 0);
    else
        MUST(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info) == 0);
}

static void *sending(void *next)
{
    /* A thread that makes another one blocks signals meanwhile, and what is blocked is kept. */
    while (!atomic_load(&begun))
        sched_yield();
    for (int i = 0; i < 120; i++) {
        MUST(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
        send(i % 3);
        MUST(signal(SIGUSR1, (void (*)(int))next) != SIG_ERR);
    }
    atomic_store(&over, 1);
    return NULL;
}

static void computing(void)
{
    atomic_store(&begun, 1);
    for (volatile long sum = 0; !atomic_load(&over);)
        sum = sum + 1;
}

static void waiting(void)
{
    atomic_store(&begun, 1);
    for (struct timespec moment = {0, 300000}; !atomic_load(&over);)
        nanosleep(&moment, NULL);
}

static void beside(void (*work)(void), void (*next)(int))
{
    pthread_t thread;
    atomic_store(&begun, 0);
    atomic_store(&over, 0);
    MUST(pthread_create(&thread, NULL, sending, (void *)next) == 0);
    work();
    MUST(pthread_join(thread, NULL) == 0);
    CHECK_EQ(atomic_load(&handled), 0, "signals that were sent while they were ignored");
}

int main(void)
{
    beside(computing, SIG_DFL);
    say("beside a thread that computes");
    beside(waiting, SIG_DFL);
    say("beside one that waits");
    beside(computing, on_usr1);
    beside(waiting, on_usr1);
    /* What the process blocks is kept while it is ignored, and taken once it is not. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    signal(SIGUSR1, SIG_IGN);
    MUST(raise(SIGUSR1) == 0);
    signal(SIGUSR1, on_usr1);
    MUST(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    say("handled: %d", atomic_load(&handled));
    return done();
}

/* Promise: F8, F17, F32 */
