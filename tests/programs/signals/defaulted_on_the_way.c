//@ cflags: -O1
/* A timer's signal is handled; the timer is stopped, and the signal goes back to its default, which would end the
 * process: what the timer sent before has been handled by then, whichever thread has taken it. */
#include "check.h"
#include <sys/time.h>

static atomic_int handled;

static void on_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void *brief(void *nothing)
{
    return nothing;
}

static void *waiting(void *nothing)
{
    for (struct timespec moment = {0, 1000000};;)
        nanosleep(&moment, NULL);
    return nothing;
}

int main(void)
{
    struct itimerval on = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_flags = SA_RESTART};
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&thread, NULL, waiting, NULL) == 0);
    for (int i = 0; i < 2000; i++) {
        action.sa_handler = on_alarm;
        MUST(sigaction(SIGALRM, &action, NULL) == 0);
        MUST(setitimer(ITIMER_REAL, &on, NULL) == 0);
        MUST(pthread_create(&thread, NULL, brief, NULL) == 0);
        MUST(pthread_join(thread, NULL) == 0);
        MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
        action.sa_handler = i % 8 ? SIG_DFL : SIG_IGN;
        MUST(sigaction(SIGALRM, &action, NULL) == 0);
        for (volatile int moment = 0; moment < 3000; moment++)
            ;
    }
    CHECK(atomic_load(&handled) > 0, "no signal has come");
    say("it goes on");
    return done();
}

/* Promise: F8, F32 */
