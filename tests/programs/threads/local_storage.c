//@ variants: pie no-pie static static-pie
//@ cflags: -O1 -pthread
/* Thread-local storage in all models, destructors of keys, errno per thread, what fs points to. */
#include "check.h"

static __thread int initialized = 0x1234;
static __thread char zeroed[5000];
__thread int global_model __attribute__((tls_model("global-dynamic"))) = 77;
static pthread_key_t key;
static atomic_int destroyed;

static void destructor(void *value)
{
    atomic_fetch_add(&destroyed, (int)(uintptr_t)value);
}

static void *thread(void *argument)
{
    uintptr_t me = (uintptr_t)argument;
    CHECK_EQ(initialized, 0x1234, "initial value");
    CHECK_EQ(zeroed[4999], 0, "zero-initialized");
    CHECK_EQ(global_model, 77, "global-dynamic");
    initialized = me;
    zeroed[4999] = me;
    global_model = me * 2;
    pthread_setspecific(key, (void *)(me + 1));
    for (int i = 0; i < 300; i++) {
        errno = 0;
        close(-1 - i);
        if (errno != EBADF)
            CHECK(0, "errno of this thread is %d", errno);
        if (initialized != (int)me || zeroed[4999] != (char)me || global_model != (int)me * 2)
            CHECK(0, "another thread's storage");
        if (i % 50 == 0)
            sched_yield();
    }
    uint64_t self;
    __asm__ volatile("movq %%fs:0, %0" : "=r"(self));
    CHECK_EQ(self, (uintptr_t)pthread_self(), "fs:0 is pthread_self");
    CHECK_EQ((uintptr_t)pthread_getspecific(key), me + 1, "specific value");
    return NULL;
}

int main(void)
{
    enum { N = 10 };
    pthread_key_create(&key, destructor);
    for (int round = 0; round < 10; round++) {
        pthread_t ids[N];
        destroyed = 0;
        for (uintptr_t i = 0; i < N; i++)
            MUST(pthread_create(&ids[i], NULL, thread, (void *)i) == 0);
        for (int i = 0; i < N; i++)
            pthread_join(ids[i], NULL);
        CHECK_EQ(destroyed, N * (N + 1) / 2, "destructors");
    }
    CHECK_EQ(initialized, 0x1234, "the first thread's storage");
    return done();
}

/* Promise: F9 */
