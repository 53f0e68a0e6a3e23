/* An interpreter: a switch, function pointers, and computed jumps. */
#include <stdio.h>

typedef long (*operation)(long, long);

static long add(long a, long b) { return a + b; }
static long sub(long a, long b) { return a - b; }
static long mul(long a, long b) { return (a * b) % 1000003; }
static long mix(long a, long b) { return a ^ (b << 3); }

__attribute__((noinline)) long select_by_switch(int code, long a, long b)
{
    switch (code) {
    case 0: return a + 1;
    case 1: return b + 2;
    case 2: return a * 3;
    case 3: return b * 5;
    case 4: return a - b;
    case 5: return b - a;
    case 6: return a & b;
    default: return a | b;
    }
}

int main(void)
{
    static operation volatile table[] = {add, sub, mul, mix};
    long a = 1, b = 2;
    for (int i = 0; i < 4000; i++) {
        a = table[i * 7 % 4](a, b);
        b = select_by_switch(i * 5 % 9, a, b) & 0xffff;
    }
    printf("%ld %ld\n", a, b);
    return 0;
}
