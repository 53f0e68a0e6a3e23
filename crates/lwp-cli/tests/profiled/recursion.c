/* Recursion of one function and of two. */
#include <stdio.h>

__attribute__((noinline, noclone, optimize("no-optimize-sibling-calls"))) int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int odd(int n);

__attribute__((noinline)) int even(int n)
{
    return n == 0 ? 1 : odd(n - 1);
}

__attribute__((noinline)) int odd(int n)
{
    return n == 0 ? 0 : even(n - 1);
}

__attribute__((noinline)) int ackermann(int m, int n)
{
    if (m == 0)
        return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

int main(void)
{
    printf("%d %d %d\n", fib(15), even(1001), ackermann(2, 20));
    return 0;
}
