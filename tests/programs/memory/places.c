//@ variants: pie no-pie static
/* A program may have its own mappings wherever nothing of its is: near its code, over and over, while its threads execute
 * code; and finds as much room as natively, or nearly so. */
#include "check.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define MIB (1ul << 20)
#define FAR ((char *)0x10000300000)

typedef int (*function)(void);

static function code_at(char *at, int value)
{
    char *page = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(page == at);
    memcpy(page, "\xb8\0\0\0\0\xc3", 6);
    page[1] = value;
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    return (function)page;
}

static char *reserve(char *at, size_t bytes, int how)
{
    return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
}

static void near_code(void)
{
    function first = code_at(FAR, 1);
    CHECK_EQ(first(), 1, "code");
    int found = 0;
    for (unsigned long i = 1; i < 40; i++)
        found += reserve(FAR + i * MIB, 4096, MAP_FIXED_NOREPLACE) == FAR + i * MIB;
    CHECK_EQ(found, 39, "places beside it");
    for (unsigned long i = 0; i < 16; i++) {
        CHECK(reserve(FAR + 64 * MIB + i * 128 * MIB, 128 * MIB, MAP_FIXED) != MAP_FAILED, "above, %lu", i);
        CHECK(reserve(FAR - (i + 1) * 128 * MIB, 128 * MIB, MAP_FIXED) != MAP_FAILED, "below, %lu", i);
        CHECK_EQ(first(), 1, "after the mapping");
        CHECK_EQ(code_at(FAR + 50 * MIB, 2 + i)(), 2 + i, "new code");
    }
    MUST(munmap(FAR - 2048 * MIB, 4200 * MIB) == 0);
    CHECK_EQ(code_at(FAR, 9)(), 9, "new code in the old place");
}

/* Everything within 2 GiB of the program and of its libraries that is not mapped. */
static void all_around(void *near)
{
    uintptr_t middle = (uintptr_t)near & ~(MIB - 1);
    if (middle < 4096 * MIB)
        return;
    uintptr_t from = middle - 2048 * MIB;
    int taken = 0, refused = 0;
    for (uintptr_t at = from; at < middle + 2048 * MIB && at < (1ul << 47) - 256 * MIB; at += 64 * MIB) {
        char *got = reserve((char *)at, 64 * MIB, MAP_FIXED_NOREPLACE);
        if (got == (char *)at) {
            taken++;
            MUST(munmap(got, 64 * MIB) == 0);
        } else
            refused++;
        CHECK_EQ(getppid() > 0, 1, "a call of the library");
    }
    CHECK(taken > 25 && refused < 9, "%d taken, %d refused", taken, refused);
}

static void around(void)
{
    all_around((void *)around);
    all_around(stdout);
}

static volatile int over;

static void *work(void *argument)
{
    function run = argument;
    long sum = 0;
    do {
        sum += run();
        char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(page, 4096);
    } while (!over);
    CHECK(sum > 0, "it has worked");
    return NULL;
}

static void while_threads_work(void)
{
    pthread_t threads[3];
    char *base = FAR + (1ul << 36);
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)code_at(base + i * 4096, 1 + i)) == 0);
    for (unsigned long i = 0; i < 14; i++) {
        usleep(10000);
        CHECK(reserve(base + MIB + i * 140 * MIB, 140 * MIB, MAP_FIXED) != MAP_FAILED, "above, %lu", i);
        CHECK(reserve(base - (i + 1) * 140 * MIB, 140 * MIB, MAP_FIXED) != MAP_FAILED, "below, %lu", i);
    }
    over = 1;
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
}

/* In the first 2 GiB. */
static void low(void)
{
    long count = 0;
    while (count < 4096 && reserve(NULL, MIB, MAP_32BIT) != MAP_FAILED)
        count++;
    CHECK(count > 850, "%ld MiB with MAP_32BIT", count);
}

/* A mapping over code takes the code away. */
static volatile sig_atomic_t faults;
static sigjmp_buf back;

static void on_fault(int signal)
{
    (void)signal;
    faults = faults + 1;
    siglongjmp(back, 1);
}

static void over_code(void)
{
    signal(SIGSEGV, on_fault);
    char *at = FAR + (1ul << 37);
    function run = code_at(at, 3);
    CHECK_EQ(run(), 3, "code");
    MUST(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    if (!sigsetjmp(back, 1))
        run();
    CHECK_EQ(faults, 1, "it is data now");
}

int main(void)
{
    RUN(near_code);
    RUN(around);
    RUN(while_threads_work);
    RUN(over_code);
    RUN(low);
    say("in a child: %x", in_child(near_code));
    return done();
}

/* Promise: F23 */
