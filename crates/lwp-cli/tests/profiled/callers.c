/* A function that is called by functions for which it costs differently, by a tail call, through a pointer, and by
 * functions that are only passed through. */
#include <stdio.h>

#define APART __attribute__((noipa))

APART long work(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i ^ sum << 1;
    return sum;
}

APART long cheap(void)
{
    long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += work(1);
    return sum;
}

APART long dear(void)
{
    long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += work(1000);
    return sum;
}

APART __attribute__((optimize("O2"))) long last(long n)
{
    return work(n + 2);
}

APART long through(long (*called)(long), long n)
{
    return called(n) + 1;
}

APART long twice(long n)
{
    return through(work, n) + through(last, n);
}

int main(void)
{
    long sum = cheap() + dear() + last(10);
    for (int i = 0; i < 10; i++)
        sum += twice(i * 5);
    printf("%ld\n", sum);
    return 0;
}
