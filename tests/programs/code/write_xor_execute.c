//@ variants: pie static
//@ cflags: -O1 -pthread
/* The well-behaved JIT: write, mprotect to executable, run, mprotect back; with threads that run other
 * code of the same page meanwhile. */
#include "check.h"

static void emit(unsigned char *at, int value)
{
    memcpy(at, "\xb8\0\0\0\0\xc3", 6);
    memcpy(at + 1, &value, 4);
}

static void toggling(void)
{
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 1500; i++) {
        emit(page, i);
        MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
        CHECK_EQ(((int (*)(void))page)(), i, "round %d", i);
        MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
    }
}

static void growing(void)
{
    /* One routine at a time is added to a region that has run before. */
    unsigned char *region = map_pages(64 * 4096, PROT_READ | PROT_WRITE);
    int routines = 0;
    for (size_t at = 0; at + 16 <= 64 * 4096; at += 272) {
        MUST(mprotect(region, 64 * 4096, PROT_READ | PROT_WRITE) == 0);
        emit(region + at, routines++);
        MUST(mprotect(region, 64 * 4096, PROT_READ | PROT_EXEC) == 0);
        for (int i = routines - 1; i >= 0; i -= 1 + routines / 8)
            CHECK_EQ(((int (*)(void))(region + i * 272))(), i, "routine %d of %d", i, routines);
        if (check_failures)
            return;
    }
}

static void half_page_ranges(void)
{
    /* mprotect over a part of a mapping splits it; the other part's code stays valid. */
    unsigned char *region = map_pages(8 * 4096, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 8; i++)
        emit(region + i * 4096, i);
    MUST(mprotect(region, 8 * 4096, PROT_READ | PROT_EXEC) == 0);
    for (int round = 0; round < 200; round++) {
        int changed = round % 8;
        MUST(mprotect(region + changed * 4096, 4096, PROT_READ | PROT_WRITE) == 0);
        emit(region + changed * 4096, round + changed);
        MUST(mprotect(region + changed * 4096, 4096, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < 8; i++) {
            int last = round - (round - i + 8) % 8;
            CHECK_EQ(((int (*)(void))(region + i * 4096))(), last < 0 ? i : last + i, "page %d in round %d", i, round);
        }
    }
}

static unsigned char *shared;
static atomic_int published, stop;
static void *runner(void *argument)
{
    long calls = 0;
    do {
        int upto = atomic_load(&published);
        for (int i = 0; i < upto; i++) {
            if (((int (*)(void))(shared + i * 32))() != i * 7) {
                CHECK(0, "routine %d of %d in a thread", i, upto);
                return NULL;
            }
            calls++;
        }
    } while (!atomic_load(&stop));
    *(long *)argument = calls;
    return NULL;
}

static void with_threads(void)
{
    /* RWX region: the main thread publishes routines while others run the ones before. */
    shared = map_pages(16 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    pthread_t ids[3];
    long calls[3] = {0};
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&ids[i], NULL, runner, &calls[i]) == 0);
    for (int i = 0; i < 2000; i++) {
        emit(shared + i * 32, i * 7);
        atomic_store(&published, i + 1);
        if (i % 50 == 0)
            usleep(200);
    }
    usleep(20000);
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++) {
        pthread_join(ids[i], NULL);
        CHECK(calls[i] > 0 || check_failures, "thread %d ran", i);
    }
}

int main(void)
{
    RUN(toggling);
    RUN(growing);
    RUN(half_page_ranges);
    RUN(with_threads);
    return done();
}

/* Promise: F10 */
