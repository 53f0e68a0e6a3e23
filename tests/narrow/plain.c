#include <stdio.h>
#include <string.h>
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(void)
{
    char a[200], b[200]; long long sum = 1;
    memset(a, 7, sizeof a); memcpy(b, a, sizeof a);
    for (int i = 1; i < 40; i++) sum = sum * (i + b[i]) / (i + 1);
    printf("%d %lld %.3f\n", fib(8), sum, 1.0 / fib(7));
    return 4;
}
