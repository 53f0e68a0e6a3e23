//@ variants: pie static
//@ cflags: -O1 -pthread
/* Futexes directly: timeouts of both kinds, wrong values, wake counts, requeue, bitsets, interruption. */
#include "check.h"
#include <linux/futex.h>

static volatile int word;
static long futex(volatile int *at, int operation, int value, const struct timespec *limit, volatile int *other, int value3)
{
    return syscall(SYS_futex, at, operation, value, limit, other, value3);
}

static void timeouts(void)
{
    struct timespec limit = {0, 50000000};
    double begin = now_seconds();
    CHECK(futex(&word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0) == -1 && errno == ETIMEDOUT, "relative: %s", strerror(errno));
    double took = now_seconds() - begin;
    CHECK(took >= 0.0499 && took < 20, "waited %.4f s", took);
    clock_gettime(CLOCK_MONOTONIC, &limit);
    begin = limit.tv_sec + limit.tv_nsec / 1e9;
    limit.tv_nsec += 50000000;
    if (limit.tv_nsec >= 1000000000)
        limit.tv_sec++, limit.tv_nsec -= 1000000000;
    CHECK(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &limit, NULL, -1) == -1 && errno == ETIMEDOUT, "absolute");
    took = now_seconds() - begin;
    CHECK(took >= 0.0495 && took < 20, "waited %.4f s", took);
    limit.tv_sec = 0, limit.tv_nsec = 1;
    CHECK(futex(&word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &limit, NULL, -1) == -1 && errno == ETIMEDOUT, "past");
    CHECK(futex(&word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0) == -1 && errno == EAGAIN, "another value");
    CHECK(futex((int *)((char *)&word + 1), FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == -1 && errno == EINVAL, "unaligned");
    CHECK(futex((int *)8, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == -1 && errno == EFAULT, "bad address");
    CHECK_EQ(futex(&word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 0, "nobody to wake");
}

static atomic_int waiting, woken;
static volatile int other;
static void *waiter(void *argument)
{
    (void)argument;
    atomic_fetch_add(&waiting, 1);
    while (word == 0)
        futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_fetch_add(&woken, 1);
    return NULL;
}

static void waking(void)
{
    enum { N = 6 };
    for (int round = 0; round < 50; round++) {
        pthread_t ids[N];
        word = 0, waiting = 0, woken = 0;
        for (int i = 0; i < N; i++)
            MUST(pthread_create(&ids[i], NULL, waiter, NULL) == 0);
        while (waiting < N)
            sched_yield();
        usleep(round % 5 * 200);
        word = 1;
        long count = futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        CHECK(count >= 0 && count <= N, "woken %ld", count);
        for (int i = 0; i < N; i++)
            pthread_join(ids[i], NULL);
        CHECK_EQ(woken, N, "threads that went on");
    }
}

static void *requeued(void *argument)
{
    (void)argument;
    atomic_fetch_add(&waiting, 1);
    futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_fetch_add(&woken, 1);
    return NULL;
}

static void requeue(void)
{
    enum { N = 4 };
    pthread_t ids[N];
    word = 0, other = 0, waiting = 0, woken = 0;
    for (int i = 0; i < N; i++)
        MUST(pthread_create(&ids[i], NULL, requeued, NULL) == 0);
    while (waiting < N)
        sched_yield();
    /* Who has not come to its call yet is moved by a later one. */
    long moved = 0, more;
    double end = patience();
    while (moved < N && now_seconds() < end) {
        more = futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, moved == 0, (void *)(uintptr_t)INT_MAX, &other, 0);
        MUST(more >= 0);
        moved += more;
        usleep(100);
    }
    CHECK_EQ(moved, N, "woken and requeued");
    while (woken < 1 && now_seconds() < end)
        usleep(100);
    CHECK_EQ(woken, 1, "one is woken");
    CHECK_EQ(futex(&other, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0), N - 1, "the rest wait on the other word");
    for (int i = 0; i < N; i++)
        pthread_join(ids[i], NULL);
}

static volatile int ticks;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

static void interrupted(void)
{
    word = 0;
    /* Again and again: the first may come before the call. */
    struct itimerval timer = {{0, 20000}, {0, 20000}}, off = {0};
    on_signal(SIGALRM, tick, 0);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == -1 && errno == EINTR, "without SA_RESTART");
    on_signal(SIGALRM, tick, SA_RESTART);
    struct timespec limit = {0, 150000000};
    CHECK(futex(&word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0) == -1 && (errno == ETIMEDOUT || errno == EINTR), "with SA_RESTART: %s", strerror(errno));
    say("with SA_RESTART: %s", strerror(errno));
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks >= 2, "%d signals", ticks);
}

int main(void)
{
    RUN(timeouts);
    RUN(waking);
    RUN(requeue);
    RUN(interrupted);
    return done();
}

/* Promise: F9 */
