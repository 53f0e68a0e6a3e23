//@ cflags: -O1
/* A timer that sends ignored signals faster than any tracer could look at them: the program gets on all the same,
 * with new code, with other threads, and with signals that are handled. */
#include "check.h"

static volatile int handled;
static void on_usr2(int number)
{
    (void)number;
    handled = handled + 1;
}

static void *count(void *up)
{
    for (int i = 0; i < 3000000; i++)
        *(volatile long *)up += i & 1;
    return NULL;
}

static void new_code(void)
{
    for (int i = 0; i < 20; i++) {
        unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
        unsigned char code[] = {0xb8, i, 0, 0, 0, 0xc3};
        memcpy(page, code, sizeof code);
        CHECK_EQ(((int (*)(void))page)(), i, "generated code");
        munmap(page, 4096);
    }
}

int main(void)
{
    signal(SIGALRM, SIG_IGN);
    signal(SIGUSR2, on_usr2);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec often = {{0, 20000}, {0, 20000}};
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    MUST(timer_settime(timer, 0, &often, NULL) == 0);
    long sums[2] = {0, 0};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&threads[i], NULL, count, &sums[i]) == 0);
    new_code();
    for (int i = 0; i < 100; i++)
        raise(SIGUSR2);
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    CHECK_EQ(handled, 100, "handled signals");
    CHECK_EQ(sums[0], 1500000, "the first thread");
    CHECK_EQ(sums[1], 1500000, "the second thread");
    /* From here on it is handled; what was ignored is gone. */
    MUST(timer_delete(timer) == 0);
    sigset_t pending;
    signal(SIGALRM, on_usr2);
    sigpending(&pending);
    CHECK_EQ(sigismember(&pending, SIGALRM), 0, "pending");
    CHECK_EQ(handled, 100, "signals from before");
    return done();
}

/* Promise: F8, F17 */
