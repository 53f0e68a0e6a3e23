//@ variants: pie static
//@ cflags: -O1
/* A hundred forks with a SIGCHLD handler that reaps, overlapping lifetimes, statuses that must all
 * arrive, and a timer on top. */
#include "check.h"

static volatile int reaped, sum, chld, ticks;

static void on_child(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    int saved = errno, status;
    chld++;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        if (WIFEXITED(status))
            sum += WEXITSTATUS(status);
        else
            sum += 1000 * WTERMSIG(status);
        reaped++;
    }
    errno = saved;
}

static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

static void forks(int total, int milliseconds)
{
    reaped = sum = 0;
    for (int i = 0; i < total; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            struct itimerval off = {0};
            setitimer(ITIMER_REAL, &off, NULL);
            if (milliseconds)
                usleep(i % milliseconds * 1000);
            if (i % 10 == 9)
                raise(SIGTERM);
            _exit(i % 10);
        }
    }
    double end = patience();
    while (reaped < total && now_seconds() < end)
        usleep(1000);
    CHECK_EQ(reaped, total, "children reaped");
    CHECK_EQ(sum, total / 10 * (36 + 1000 * SIGTERM), "their statuses");
    CHECK(chld > 0, "SIGCHLD came");
}

static void one_after_the_other(void)
{
    signal(SIGCHLD, SIG_DFL);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0)
            _exit(i);
        int status;
        pid_t got;
        while ((got = waitpid(pid, &status, 0)) == -1)
            MUST(errno == EINTR);
        CHECK_EQ(got, pid, "waitpid");
        CHECK_EQ(status, (i & 255) << 8, "status");
    }
}

static void quick(void) { forks(100, 0); }
static void overlapping(void) { forks(100, 7); }

int main(void)
{
    on_signal(SIGCHLD, on_child, SA_RESTART | SA_NOCLDSTOP);
    RUN(quick);
    RUN(overlapping);
    on_signal(SIGALRM, tick, SA_RESTART);
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    RUN(quick);
    RUN(one_after_the_other);
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks > 5, "only %d ticks", ticks);
    return done();
}

/* Promise: F9 */
