//@ variants: pie static
//@ cflags: -O1 -fno-optimize-sibling-calls
/* Deep, mutual and wide recursion; more call levels than any shadow structure might hold. */
#include "check.h"
#include <sys/resource.h>

__attribute__((noinline)) static uint64_t deep(uint64_t n) { return n == 0 ? 1 : deep(n - 1) * 3 + n; }
__attribute__((noinline)) static bool odd(unsigned n);
__attribute__((noinline)) static bool even(unsigned n) { return n == 0 ? true : odd(n - 1); }
__attribute__((noinline)) static bool odd(unsigned n) { return n == 0 ? false : even(n - 1); }
__attribute__((noinline)) static unsigned ackermann(unsigned m, unsigned n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__attribute__((noinline)) static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

typedef uint64_t visitor(uint64_t depth, void *self);
__attribute__((noinline)) static uint64_t through_pointer(uint64_t depth, void *self)
{
    return depth == 0 ? 7 : ((visitor *)self)(depth - 1, self) * 5 + depth;
}

int main(void)
{
    say("deep %016lx", deep(100000));
    say("even %d odd %d", even(50000), odd(50000));
    say("ackermann %u", ackermann(2, 400));
    say("fib %u", fib(27));
    say("pointer %016lx", through_pointer(60000, through_pointer));
    for (int i = 0; i < 20; i++)
        CHECK_EQ(deep(1000 + i % 2), deep(1000 + i % 2), "the same again");
    return done();
}

/* Promise: F7 */
