//@ variants: pie no-pie static
//@ cflags: -O2
/* Interpreters: computed goto, switch tables, tables of functions, virtual calls through few sites. */
#include "check.h"

static uint64_t interpret(const unsigned char *code, size_t length, uint64_t seed)
{
    static const void *const labels[] = {&&add, &&mul, &&xor, &&rot, &&sub, &&not, &&swap, &&shr, &&call, &&halt};
    uint64_t a = seed, b = ~seed, steps = 0;
    const unsigned char *pc = code, *end = code + length;
#define NEXT do { if (pc == end) goto halt; steps++; goto *labels[*pc++ % 9]; } while (0)
    NEXT;
add: a += b + 1; NEXT;
mul: a *= b | 1; NEXT;
xor: a ^= b >> 3; NEXT;
rot: a = a << 7 | a >> 57; NEXT;
sub: b -= a; NEXT;
not: b = ~b; NEXT;
swap: { uint64_t t = a; a = b; b = t; } NEXT;
shr: b ^= b >> 17; NEXT;
call: a += __builtin_popcountll(b); NEXT;
halt:
    return a ^ b ^ steps;
}

__attribute__((noinline)) static uint64_t by_switch(unsigned op, uint64_t x)
{
    switch (op) {
    case 0: return x + 17;
    case 1: return x * 3;
    case 2: return x ^ 0x5555;
    case 3: return x >> 1;
    case 4: return x << 3 | 1;
    case 5: return -x;
    case 6: return x - 99;
    case 7: return ~x;
    case 8: return x % 1000003;
    case 9: return x / 3;
    case 10: return x | 0xff00;
    case 11: return x & ~0xffull;
    default: return x + op;
    }
}

static uint64_t f0(uint64_t x) { return x + 1; }
static uint64_t f1(uint64_t x) { return x ^ 0x1234567; }
static uint64_t f2(uint64_t x) { return x * 5; }
static uint64_t f3(uint64_t x) { return x >> 2; }
static uint64_t (*volatile const table[])(uint64_t) = {f0, f1, f2, f3, f2, f1, f0, f2};

int main(void)
{
    static unsigned char program[1 << 16];
    uint64_t x = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < sizeof program; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        program[i] = x >> 11;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 40; i++)
        sum = sum * 31 + interpret(program, sizeof program, i);
    say("interpreter %016lx", sum);
    for (size_t i = 0; i < 2000000; i++)
        sum = by_switch(program[i & 0xffff] & 15, sum);
    say("switch %016lx", sum);
    for (size_t i = 0; i < 2000000; i++)
        sum = table[program[i & 0xffff] & 7](sum);
    say("table %016lx", sum);
    return done();
}

/* Promise: F7 */
