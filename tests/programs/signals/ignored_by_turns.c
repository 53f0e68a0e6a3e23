//@ cflags: -O1
/* A thread signals itself while another one ignores the signal, handles it and leaves it to its default in turn. What
 * is ignored is gone, what is handled has been when the call returns, and the default finds nothing left over. */
#include "check.h"

enum { ROUNDS = 40, MANY = 50 };
static atomic_int turn, answered, handled;

static void on_usr1(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void by_raise(void) { MUST(raise(SIGUSR1) == 0); }
static void by_kill(void) { MUST(syscall(SYS_tkill, gettid(), SIGUSR1) == 0); }
static void by_queue(void)
{
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    MUST(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR1, &info) == 0);
}

/* Waits for the turn after `before`, with a call that a signal could interrupt. */
static int turn_after(int before)
{
    double end = patience();
    while (atomic_load(&turn) == before && now_seconds() < end)
        sched_yield();
    return atomic_load(&turn);
}

static void *raising(void *by)
{
    void (*send)(void) = (void (*)(void))by;
    for (int now = 0; (now = turn_after(now)) > 0;) {
        int before = atomic_load(&handled);
        if (now % 3 == 1) {
            for (int i = 0; i < MANY; i++)
                send();
            CHECK_EQ(atomic_load(&handled), before, "ignored, turn %d", now);
        } else if (now % 3 == 2) {
            send();
            CHECK_EQ(atomic_load(&handled), before + 1, "handled, turn %d", now);
        }
        atomic_store(&answered, now);
    }
    return NULL;
}

static void take_turns(void (*send)(void))
{
    pthread_t thread;
    double end = patience();
    atomic_store(&turn, 0);
    atomic_store(&answered, 0);
    MUST(pthread_create(&thread, NULL, raising, (void *)send) == 0);
    for (int now = 1; now <= 3 * ROUNDS; now++) {
        signal(SIGUSR1, now % 3 == 1 ? SIG_IGN : now % 3 == 2 ? on_usr1 : SIG_DFL);
        atomic_store(&turn, now);
        while (atomic_load(&answered) != now && now_seconds() < end)
            sched_yield();
    }
    atomic_store(&turn, -1);
    MUST(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    take_turns(by_raise);
    take_turns(by_kill);
    take_turns(by_queue);
    say("handled: %d", atomic_load(&handled));
    return done();
}

/* Promise: F8, F17, F32 */
