//@ variants: pie static
//@ cflags: -O0 -z execstack -Wno-all
/* Nested functions with trampolines on an executable stack, and code built in a local array. */
#include "check.h"

static int apply(int (*function)(int), int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += function(i);
    return sum;
}

static int outer(int factor, int depth)
{
    int calls = 0;
    int inner(int x)
    {
        calls++;
        return x * factor;
    }
    int sum = apply(inner, 10);
    if (depth > 0)
        sum += outer(factor + 1, depth - 1);
    CHECK_EQ(calls, 10, "calls of the nested function");
    return sum;
}

static int local_code(int value)
{
    unsigned char code[16] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(code + 1, &value, 4);
    return ((int (*)(void))code)();
}

static int deeper(int depth, int value)
{
    volatile char pad[37];
    pad[0] = depth;
    return depth == 0 ? local_code(value) : deeper(depth - 1, value) + (pad[0] - depth);
}

int main(void)
{
    for (int i = 0; i < 200; i++) {
        int want = 0;
        for (int d = 0; d <= i % 6; d++)
            want += 45 * (i + d);
        CHECK_EQ(outer(i, i % 6), want, "nested functions");
        CHECK_EQ(local_code(i), i, "code in a local array");
        CHECK_EQ(deeper(i % 20, i * 5), i * 5, "code at many stack addresses");
        if (check_failures)
            break;
    }
    return done();
}

/* Promise: F10 */
