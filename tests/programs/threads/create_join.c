//@ variants: pie static
//@ cflags: -O1 -pthread
/* Storms of short threads: joined, detached, nested, many at once, with return values and stacks. */
#include "check.h"

static atomic_long counter;

static void *short_thread(void *argument)
{
    atomic_fetch_add(&counter, 1);
    return (void *)((uintptr_t)argument * 3);
}

static void joined(void)
{
    counter = 0;
    for (uintptr_t i = 0; i < 500; i++) {
        pthread_t id;
        void *result = NULL;
        MUST(pthread_create(&id, NULL, short_thread, (void *)i) == 0);
        MUST(pthread_join(id, &result) == 0);
        CHECK_EQ((uintptr_t)result, i * 3, "result of thread %lu", i);
    }
    CHECK_EQ(counter, 500, "threads that ran");
}

static void at_once(void)
{
    enum { N = 64 };
    pthread_t ids[N];
    counter = 0;
    for (int round = 0; round < 8; round++) {
        for (uintptr_t i = 0; i < N; i++)
            MUST(pthread_create(&ids[i], NULL, short_thread, (void *)i) == 0);
        for (uintptr_t i = 0; i < N; i++) {
            void *result;
            MUST(pthread_join(ids[i], &result) == 0);
            CHECK_EQ((uintptr_t)result, i * 3, "result");
        }
    }
    CHECK_EQ(counter, 8 * N, "threads that ran");
}

static void detached(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    counter = 0;
    for (uintptr_t i = 0; i < 200; i++) {
        pthread_t id;
        while (pthread_create(&id, &attributes, short_thread, NULL) != 0)
            usleep(100);
    }
    double end = patience();
    while (counter < 200 && now_seconds() < end)
        usleep(200);
    CHECK_EQ(counter, 200, "detached threads");
}

static void *tree(void *argument)
{
    uintptr_t depth = (uintptr_t)argument;
    atomic_fetch_add(&counter, 1);
    if (depth == 0)
        return NULL;
    pthread_t left, right;
    MUST(pthread_create(&left, NULL, tree, (void *)(depth - 1)) == 0);
    MUST(pthread_create(&right, NULL, tree, (void *)(depth - 1)) == 0);
    pthread_join(left, NULL);
    pthread_join(right, NULL);
    return NULL;
}

static void nested(void)
{
    counter = 0;
    tree((void *)5);
    CHECK_EQ(counter, 63, "threads of a tree");
}

/* Cold code in every thread at once: all threads miss the same translations together. */
__asm__(".text\n.balign 16\n.globl cold\ncold:\n.set n, 0\n.rept 2000\n.balign 16\n addq $n, %rax\n ret\n.set n, n + 1\n.endr\n");
extern char cold[];
static pthread_barrier_t barrier;
static void *all_cold(void *argument)
{
    uint64_t sum = 0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2000; i++)
        __asm__ volatile("call *%1" : "+a"(sum) : "r"(cold + i * 16) : "cc", "memory");
    *(uint64_t *)argument = sum;
    return NULL;
}

static void cold_together(void)
{
    enum { N = 8 };
    pthread_t ids[N];
    uint64_t sums[N];
    pthread_barrier_init(&barrier, NULL, N);
    for (int i = 0; i < N; i++)
        MUST(pthread_create(&ids[i], NULL, all_cold, &sums[i]) == 0);
    for (int i = 0; i < N; i++) {
        pthread_join(ids[i], NULL);
        CHECK_EQ(sums[i], 1999 * 1000, "sum of thread %d", i);
    }
}

int main(void)
{
    RUN(cold_together);
    RUN(joined);
    RUN(at_once);
    RUN(detached);
    RUN(nested);
    return done();
}

/* Promise: F9 */
