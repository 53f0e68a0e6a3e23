//@ variants: pie static
//@ cflags: -O2 -pthread
/* Heavy mixed work under a fast timer: the result must be that of the undisturbed computation. */
#include "check.h"
#include <math.h>

static volatile int ticks;
static volatile double handler_sum;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
    handler_sum += sqrt((double)ticks);
}

typedef uint64_t operation(uint64_t);
__attribute__((noinline)) static uint64_t op_a(uint64_t x) { return x * 6364136223846793005u + 1442695040888963407u; }
__attribute__((noinline)) static uint64_t op_b(uint64_t x) { return x ^ x >> 29; }
__attribute__((noinline)) static uint64_t op_c(uint64_t x) { return x << 13 | x >> 51; }
__attribute__((noinline)) static uint64_t op_d(uint64_t x) { char t[40]; snprintf(t, sizeof t, "%lx", x); return x + t[3]; }
static operation *const operations[] = {op_a, op_b, op_c, op_d, op_a, op_c, op_b, op_a};

__attribute__((noinline)) static uint64_t recurse(uint64_t x, int depth)
{
    return depth == 0 ? x : op_a(recurse(operations[x & 7](x), depth - 1));
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t workload(void)
{
    static uint64_t data[20000], copy[20000];
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++)
        data[i] = x = operations[x >> 13 & 7](x);
    memcpy(copy, data, sizeof data);
    qsort(copy, 20000, sizeof *copy, compare);
    double sum = 0;
    for (int i = 0; i < 20000; i++) {
        sum += sin((double)(copy[i] % 1000)) * 1e6;
        x = x * 31 + copy[i];
    }
    x += (uint64_t)(int64_t)sum;
    for (int i = 0; i < 300; i++)
        x = recurse(x, 50);
    for (int i = 0; i < 300; i++)
        x += (uint64_t)(getppid() != 0) + (uint64_t)syscall(SYS_gettid) * 0;
    for (int i = 0; i < 100; i++) {
        char *block = malloc(1000 + i * 50);
        memset(block, i, 1000 + i * 50);
        x += block[999];
        free(block);
    }
    return x;
}

int main(void)
{
    uint64_t want = workload();
    on_signal(SIGALRM, tick, SA_RESTART);
    struct itimerval timer = {{0, 200}, {0, 200}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    double end = patience();
    int rounds = 0;
    while ((ticks < 3000 || rounds < 20) && now_seconds() < end) {
        uint64_t got = workload();
        CHECK_EQ(got, want, "round %d after %d signals", rounds, ticks);
        if (check_failures)
            break;
        rounds++;
    }
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks >= 1000, "only %d signals", ticks);
    double sum = 0;
    for (int i = 1; i <= ticks; i++)
        sum += sqrt((double)i);
    CHECK(sum == handler_sum, "the handlers' own sum: %a, want %a", handler_sum, sum);
    say("result %016lx", want);
    return done();
}

/* Promise: F8 */
