//@ variants: pie static
//@ cflags: -O1 -pthread
/* Mutexes, condition variables, semaphores, rwlocks, barriers, once, atomics: totals must be exact. */
#include "check.h"
#include <semaphore.h>

enum { N = 6, ROUNDS = 20000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long plain, spun, written;
static atomic_long atomic;
static unsigned __int128 wide __attribute__((aligned(16)));
static long by_exchange;

static void in_threads(void *(*function)(void *))
{
    pthread_t ids[N];
    for (uintptr_t i = 0; i < N; i++)
        MUST(pthread_create(&ids[i], NULL, function, (void *)i) == 0);
    for (int i = 0; i < N; i++)
        pthread_join(ids[i], NULL);
}

static void *counting(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        plain++;
        pthread_mutex_unlock(&mutex);
        atomic_fetch_add(&atomic, 2);
        __asm__ volatile("lock addq $1, %0" : "+m"(by_exchange)::"cc");
        if (i % 64 == 0) {
            pthread_rwlock_wrlock(&lock);
            written++;
            pthread_rwlock_unlock(&lock);
        } else if (i % 16 == 0) {
            pthread_rwlock_rdlock(&lock);
            (void)*(volatile long *)&written;
            pthread_rwlock_unlock(&lock);
        }
        if (i % 8 == 0) {
            pthread_spin_lock(&spin);
            spun++;
            pthread_spin_unlock(&spin);
        }
    }
    return argument;
}

static void exact_counts(void)
{
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    in_threads(counting);
    CHECK_EQ(plain, N * ROUNDS, "under a mutex");
    CHECK_EQ(atomic, 2 * N * ROUNDS, "atomic");
    CHECK_EQ(by_exchange, N * ROUNDS, "locked add");
    CHECK_EQ(spun, N * (ROUNDS / 8), "under a spin lock");
    CHECK_EQ(written, N * ((ROUNDS + 63) / 64), "under a write lock");
}

static void *wide_counting(void *argument)
{
    uint64_t *word = (uint64_t *)&wide;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t low = word[0], high = word[1];
        unsigned char ok;
        do {
            uint64_t new_low = low + 0x8000000000000001ull;
            uint64_t new_high = high + (new_low < low) + 1;
            __asm__ volatile("lock cmpxchg16b %1\n setz %0"
                             : "=q"(ok), "+m"(wide), "+a"(low), "+d"(high)
                             : "b"(new_low), "c"(new_high) : "cc", "memory");
        } while (!ok);
    }
    return argument;
}

static void sixteen_bytes(void)
{
    wide = 0;
    in_threads(wide_counting);
    unsigned __int128 want = (unsigned __int128)N * ROUNDS * (((unsigned __int128)1 << 64) + 0x8000000000000001ull);
    CHECK(wide == want, "%016lx%016lx", (uint64_t)(wide >> 64), (uint64_t)wide);
}

/* A bounded queue. */
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static long queue[8], head, tail, taken_sum;
static void *queue_user(void *argument)
{
    bool producer = (uintptr_t)argument % 2 == 0;
    for (long i = 0; i < 3000; i++) {
        pthread_mutex_lock(&mutex);
        if (producer) {
            while (tail - head == 8)
                pthread_cond_wait(&not_full, &mutex);
            queue[tail++ % 8] = i;
            pthread_cond_signal(&not_empty);
        } else {
            while (tail == head)
                pthread_cond_wait(&not_empty, &mutex);
            taken_sum += queue[head++ % 8];
            pthread_cond_broadcast(&not_full);
        }
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void bounded_queue(void)
{
    in_threads(queue_user);
    CHECK_EQ(taken_sum, N / 2 * 3000l * 2999 / 2, "sum of what was taken");
}

static sem_t turns[N];
static long order_errors, position;
static void *in_turn(void *argument)
{
    uintptr_t me = (uintptr_t)argument;
    for (int i = 0; i < 500; i++) {
        sem_wait(&turns[me]);
        if (position++ % N != (long)me)
            order_errors++;
        sem_post(&turns[(me + 1) % N]);
    }
    return NULL;
}

static void token_ring(void)
{
    for (int i = 0; i < N; i++)
        sem_init(&turns[i], 0, i == 0);
    in_threads(in_turn);
    CHECK_EQ(order_errors, 0, "turns out of order");
    CHECK_EQ(position, N * 500, "turns");
}

static pthread_barrier_t barrier;
static atomic_int phase_count[200], serial;
static void *phases(void *argument)
{
    for (int i = 0; i < 200; i++) {
        atomic_fetch_add(&phase_count[i], 1);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            atomic_fetch_add(&serial, 1);
        if (atomic_load(&phase_count[i]) != N)
            CHECK(0, "phase %d left early", i);
    }
    return argument;
}

static void barriers(void)
{
    pthread_barrier_init(&barrier, NULL, N);
    in_threads(phases);
    CHECK_EQ(serial, 200, "serial threads");
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_runs;
static void run_once(void) { usleep(1000); once_runs++; }
static void *once_user(void *argument)
{
    pthread_once(&once, run_once);
    CHECK_EQ(once_runs, 1, "once is over when pthread_once returns");
    return argument;
}

static void only_once(void)
{
    in_threads(once_user);
    CHECK_EQ(once_runs, 1, "runs");
}

int main(void)
{
    RUN(exact_counts);
    RUN(sixteen_bytes);
    RUN(bounded_queue);
    RUN(token_ring);
    RUN(barriers);
    RUN(only_once);
    return done();
}

/* Promise: F9 */
