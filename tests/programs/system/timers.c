//@ variants: pie static
//@ cflags: -O1 -pthread
/* Interval timers of all clocks under load, POSIX timers by signal and by thread, timerfd, overruns,
 * CPU-time clocks, alarm and its remainder. */
#include "check.h"
#include <sys/resource.h>
#include <sys/timerfd.h>

static volatile int counts[65];
static void count(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    counts[number]++;
}

static volatile uint64_t sink;
static void burn(void)
{
    for (int i = 0; i < 20000; i++)
        sink = sink * 31 + i;
}

static void interval(void)
{
    static const struct { int which, signal; const char *name; } kinds[] = {
        {ITIMER_REAL, SIGALRM, "ITIMER_REAL"}, {ITIMER_VIRTUAL, SIGVTALRM, "ITIMER_VIRTUAL"}, {ITIMER_PROF, SIGPROF, "ITIMER_PROF"}};
    for (int i = 0; i < 3; i++) {
        on_signal(kinds[i].signal, count, SA_RESTART);
        counts[kinds[i].signal] = 0;
        struct itimerval timer = {{0, 5000}, {0, 5000}}, off = {0}, left;
        setitimer(kinds[i].which, &timer, NULL);
        double end = patience();
        while (counts[kinds[i].signal] < 20 && now_seconds() < end)
            burn();
        CHECK_EQ(getitimer(kinds[i].which, &left), 0, "%s: getitimer", kinds[i].name);
        CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec <= 10000 && left.it_interval.tv_usec == 5000, "%s: %ld left of %ld", kinds[i].name,
              (long)left.it_value.tv_usec, (long)left.it_interval.tv_usec);
        setitimer(kinds[i].which, &off, NULL);
        CHECK(counts[kinds[i].signal] >= 20, "%s: only %d signals", kinds[i].name, counts[kinds[i].signal]);
        int after = counts[kinds[i].signal];
        double until = now_seconds() + 0.03;
        while (now_seconds() < until)
            burn();
        CHECK(counts[kinds[i].signal] <= after + 1, "%s: signals after it was switched off", kinds[i].name);
    }
}

static void one_alarm(void)
{
    counts[SIGALRM] = 0;
    CHECK_EQ(alarm(100), 0, "no alarm before");
    unsigned left = alarm(1);
    CHECK(left <= 100 && left >= 50, "%u seconds left", left);
    while (counts[SIGALRM] == 0)
        pause();
    CHECK_EQ(counts[SIGALRM], 1, "one alarm");
    CHECK_EQ(alarm(0), 0, "none left");
}

static void posix_timers(void)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    for (int i = 0; i < 4; i++) {
        int number = SIGRTMIN + i;
        on_signal(number, count, SA_RESTART);
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
        timer_t timer;
        MUST(timer_create(clocks[i], &event, &timer) == 0);
        struct itimerspec each = {{0, 3000000}, {0, 3000000}};
        MUST(timer_settime(timer, 0, &each, NULL) == 0);
        double end = patience();
        while (counts[number] < 15 && now_seconds() < end)
            burn();
        CHECK(counts[number] >= 15, "clock %d: only %d signals", clocks[i], counts[number]);
        MUST(timer_delete(timer) == 0);
    }
}

static atomic_int thread_runs;
static void in_thread(union sigval value)
{
    CHECK_EQ(value.sival_int, 77, "value");
    atomic_fetch_add(&thread_runs, 1);
}

static void by_thread(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread, .sigev_value.sival_int = 77};
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec each = {{0, 2000000}, {0, 2000000}};
    MUST(timer_settime(timer, 0, &each, NULL) == 0);
    double end = patience();
    while (atomic_load(&thread_runs) < 20 && now_seconds() < end)
        burn();
    CHECK(thread_runs >= 20, "only %d threads", thread_runs);
    timer_delete(timer);
    usleep(10000);
}

static void to_one_thread(void)
{
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
    int number = SIGRTMIN + 6;
    on_signal(number, count, SA_RESTART);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event.sigev_notify_thread_id = syscall(SYS_gettid);
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    MUST(timer_settime(timer, 0, &each, NULL) == 0);
    double end = patience();
    while (counts[number] < 50 && now_seconds() < end)
        burn();
    CHECK(counts[number] >= 50, "only %d signals", counts[number]);
    timer_delete(timer);
}

static void by_descriptor(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    MUST(fd >= 0);
    struct itimerspec each = {{0, 5000000}, {0, 5000000}};
    MUST(timerfd_settime(fd, 0, &each, NULL) == 0);
    uint64_t total = 0, expirations;
    while (total < 10) {
        MUST(read(fd, &expirations, sizeof expirations) == sizeof expirations);
        total += expirations;
    }
    usleep(20000);
    MUST(read(fd, &expirations, sizeof expirations) == sizeof expirations);
    CHECK(expirations >= 3, "expirations while asleep: %lu", expirations);
    close(fd);
}

static void cpu_clocks(void)
{
    struct timespec process, thread;
    struct rusage usage;
    double end = patience();
    do {
        burn();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process);
    } while (process.tv_sec == 0 && process.tv_nsec < 50000000 && now_seconds() < end);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread);
    getrusage(RUSAGE_SELF, &usage);
    double p = process.tv_sec + process.tv_nsec / 1e9, t = thread.tv_sec + thread.tv_nsec / 1e9;
    double u = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
    CHECK(t > 0.005 && t <= p + 0.001, "thread %f, process %f", t, p);
    CHECK(u > p - 0.1 && u < p + 0.1, "usage %f, process %f", u, p);
    CHECK(clock() > 0, "clock()");
}

static void limit_child(void)
{
    struct rlimit limit = {1, 2};
    MUST(setrlimit(RLIMIT_CPU, &limit) == 0);
    for (;;)
        burn();
}

int main(void)
{
    RUN(interval);
    RUN(one_alarm);
    RUN(posix_timers);
    RUN(by_thread);
    RUN(to_one_thread);
    RUN(by_descriptor);
    RUN(cpu_clocks);
    CHECK_EQ(in_child(limit_child), SIGXCPU, "RLIMIT_CPU");
    return done();
}
