//@ variants: pie static
//@ cflags: -O1 -pthread
/* Signals to threads: pthread_kill, a process-wide timer over busy threads, masks per thread, faults in
 * many threads at once, cancellation. */
#include "check.h"

enum { N = 4 };
static atomic_int ready, stop, hits[N + 1];
static __thread int me = N;

static void count(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    atomic_fetch_add(&hits[me], 1);
}

static uint64_t mix(uint64_t x) { return (x ^ x >> 31) * 0x9e3779b97f4a7c15; }
__attribute__((noinline)) static uint64_t compute(int rounds)
{
    uint64_t (*volatile function)(uint64_t) = mix;
    uint64_t x = 1;
    for (int i = 0; i < rounds; i++)
        x = function(x) + i;
    return x;
}

static uint64_t want;
static void *worker(void *argument)
{
    me = (int)(uintptr_t)argument;
    atomic_fetch_add(&ready, 1);
    long rounds = 0;
    do {
        if (compute(20000) != want) {
            CHECK(0, "thread %d computed a wrong value", me);
            break;
        }
        rounds++;
    } while (!atomic_load(&stop));
    return (void *)rounds;
}

static void run_workers(void (*meanwhile)(pthread_t *))
{
    pthread_t ids[N];
    stop = ready = 0;
    memset(hits, 0, sizeof hits);
    for (uintptr_t i = 0; i < N; i++)
        MUST(pthread_create(&ids[i], NULL, worker, (void *)i) == 0);
    while (atomic_load(&ready) < N)
        sched_yield();
    meanwhile(ids);
    stop = 1;
    for (int i = 0; i < N; i++) {
        void *rounds;
        pthread_join(ids[i], &rounds);
        CHECK((long)rounds > 0, "thread %d ran", i);
    }
}

static void kill_each(pthread_t *ids)
{
    for (int round = 0; round < 25; round++)
        for (int i = 0; i < N; i++) {
            int before = atomic_load(&hits[i]);
            MUST(pthread_kill(ids[i], SIGUSR1) == 0);
            double end = patience();
            while (atomic_load(&hits[i]) == before && now_seconds() < end)
                usleep(50);
            CHECK_EQ(atomic_load(&hits[i]), before + 1, "signal %d to thread %d", round, i);
            if (check_failures)
                return;
        }
}

static void timer_over_all(pthread_t *ids)
{
    (void)ids;
    on_signal(SIGALRM, count, SA_RESTART);
    struct itimerval timer = {{0, 500}, {0, 500}}, off = {0};
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    setitimer(ITIMER_REAL, &timer, NULL);
    double end = patience();
    int total = 0;
    while (total < 1000 && now_seconds() < end) {
        usleep(1000);
        total = 0;
        for (int i = 0; i < N; i++)
            total += atomic_load(&hits[i]);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(total >= 1000, "only %d signals", total);
    CHECK_EQ(hits[N], 0, "the thread that blocks it gets none");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static __thread sigjmp_buf back;
static __thread volatile uintptr_t address;
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    address = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

static void *faulting(void *argument)
{
    uintptr_t base = (uintptr_t)argument * 0x100;
    for (volatile int i = 0; i < 1000; i++) {
        address = 0;
        if (sigsetjmp(back, 1) == 0)
            *(volatile char *)(base + i % 200) = 1;
        if (address != base + i % 200) {
            CHECK_EQ(address, base + i % 200, "si_addr in thread %lu", (uintptr_t)argument);
            break;
        }
    }
    return NULL;
}

static void faults_together(void)
{
    pthread_t ids[N];
    on_signal(SIGSEGV, on_fault, SA_NODEFER);
    for (uintptr_t i = 0; i < N; i++)
        MUST(pthread_create(&ids[i], NULL, faulting, (void *)(i + 1)) == 0);
    for (int i = 0; i < N; i++)
        pthread_join(ids[i], NULL);
    signal(SIGSEGV, SIG_DFL);
}

static atomic_int cleaned;
static void cleanup(void *argument) { (void)argument; atomic_fetch_add(&cleaned, 1); }
static void *cancelled(void *argument)
{
    pthread_cleanup_push(cleanup, NULL);
    if (argument)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (volatile unsigned long i = 0;; i++)
        if (!argument)
            pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancellation(void)
{
    for (int i = 0; i < 60; i++) {
        pthread_t id;
        MUST(pthread_create(&id, NULL, cancelled, (void *)(uintptr_t)(i & 1)) == 0);
        usleep(500);
        MUST(pthread_cancel(id) == 0);
        void *result;
        pthread_join(id, &result);
        CHECK(result == PTHREAD_CANCELED, "result of a cancelled thread");
    }
    CHECK_EQ(cleaned, 60, "clean-up handlers");
}

static void each(void) { run_workers(kill_each); }
static void timer(void) { run_workers(timer_over_all); }

int main(void)
{
    want = compute(20000);
    on_signal(SIGUSR1, count, SA_RESTART);
    RUN(each);
    RUN(timer);
    RUN(faults_together);
    RUN(cancellation);
    return done();
}

/* Promise: F9 */
