//@ variants: pie no-pie static
//@ cflags: -O2
/* Instructions that are rare in compiled code, each with inputs whose result is known to be a function of
 * them alone; results go into one number per group. */
#include "check.h"
#include <cpuid.h>

static uint64_t hash;
static void put(uint64_t value) { hash = (hash ^ value) * 0x100000001b3; }
static void report(const char *group)
{
    say("%s %016lx", group, hash);
    hash = 0xcbf29ce484222325;
}
#define FLAGS "pushfq\n popq %[f]\n"
static uint64_t x = 88172645463325252u;
static uint64_t next(void) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; return x; }

static void decimal_and_flags(void)
{
    for (int i = 0; i < 256; i++) {
        uint64_t a = i << 8, f;
        __asm__ volatile("sahf\n lahf\n" : "+a"(a)::"cc");
        put(a);
        a = i;
        __asm__ volatile("cbtw\n cwtl\n cltq\n cqto\n movq %%rdx, %[f]" : "+a"(a), [f] "=r"(f)::"rdx");
        put(a), put(f);
        __asm__ volatile("stc\n cmc\n setc %%al\n stc\n adcb %%al, %%al\n" FLAGS : "+a"(a), [f] "=r"(f)::"cc");
        put(a), put(f & 0x8d5);
    }
    unsigned char table[256];
    for (int i = 0; i < 256; i++)
        table[i] = i * 7 + 3;
    uint64_t a = 0x1122334455667700;
    for (int i = 0; i < 300; i++)
        __asm__ volatile("xlat" : "+a"(a) : "b"(table), "m"(table));
    put(a);
    report("flags and xlat");
}

static void bit_instructions(void)
{
    uint64_t words[64];
    for (int i = 0; i < 64; i++)
        words[i] = next();
    for (int i = 0; i < 2000; i++) {
        int64_t bit = (int64_t)(next() % 3000) - 1000;
        uint64_t f, *base = words + 20;
        /* A bit index in a register reaches outside the operand. */
        __asm__ volatile("btcq %[bit], %[m]\n" FLAGS : [f] "=r"(f), [m] "+m"(*(uint64_t(*)[44])base) : [bit] "r"(bit) : "cc", "memory");
        put(f & 1);
        __asm__ volatile("lock btsl %k[bit], %[m]\n" FLAGS : [f] "=r"(f), [m] "+m"(*(uint32_t *)base) : [bit] "r"(bit & 31) : "cc", "memory");
        put(f & 1);
        uint64_t v = next(), r = 7;
        __asm__ volatile("bsfq %1, %0\n" : "+r"(r) : "r"(v) : "cc");
        put(r);
        __asm__ volatile("bsrq %1, %0\n" : "+r"(r) : "r"(v | 1) : "cc");
        put(r);
        __asm__ volatile("popcntq %1, %0" : "=r"(r) : "r"(v) : "cc");
        put(r);
        __asm__ volatile("rclq %b2, %0\n rcrl %b2, %k1" : "+r"(r), "+r"(v) : "c"(bit) : "cc");
        put(r), put(v);
        __asm__ volatile("shldq %b2, %1, %0" : "+r"(r) : "r"(v), "c"(bit) : "cc");
        put(r);
    }
    for (int i = 0; i < 64; i++)
        put(words[i]);
    report("bits");
}

static void exchanges(void)
{
    uint64_t word = 5, a, f;
    uint64_t pair[2] __attribute__((aligned(16))) = {1, 2};
    for (int i = 0; i < 1000; i++) {
        a = i & 1 ? word : next();
        __asm__ volatile("lock cmpxchgq %[n], %[m]\n" FLAGS : "+a"(a), [m] "+m"(word), [f] "=r"(f) : [n] "r"(next()) : "cc");
        put(a), put(word), put(f & 0x8d5);
        uint64_t low = i & 1 ? pair[0] : 9, high = pair[1];
        __asm__ volatile("lock cmpxchg16b %[m]\n" FLAGS : "+a"(low), "+d"(high), [m] "+m"(*(unsigned __int128 *)pair), [f] "=r"(f) : "b"(next()), "c"(next()) : "cc");
        put(low), put(high), put(f & 0x40);
        uint32_t low32 = i & 1 ? (uint32_t)word : 3, high32 = word >> 32;
        __asm__ volatile("lock cmpxchg8b %[m]\n" : "+a"(low32), "+d"(high32), [m] "+m"(word) : "b"((uint32_t)next()), "c"((uint32_t)next()) : "cc");
        put(low32), put(word);
        a = next();
        __asm__ volatile("lock xaddq %0, %1\n xchgq %0, %1" : "+r"(a), "+m"(word)::"cc");
        put(a), put(word);
        __asm__ volatile("xchgb %%ah, %%bl\n bswap %%eax\n" : "+a"(a)::"rbx");
        put(a);
    }
    report("exchanges");
}

static void divisions(void)
{
    for (int i = 0; i < 2000; i++) {
        uint64_t low = next(), high = next() % 1000, by = next() | 1ull << 40;
        __asm__ volatile("divq %2" : "+a"(low), "+d"(high) : "r"(by) : "cc");
        put(low), put(high);
        int64_t slow = next(), shigh = slow >> 63;
        __asm__ volatile("idivq %2" : "+a"(slow), "+d"(shigh) : "r"((int64_t)by) : "cc");
        put(slow), put(shigh);
        uint32_t a = next(), d = 0;
        __asm__ volatile("divl %2" : "+a"(a), "+d"(d) : "r"((uint32_t)by | 1) : "cc");
        put(a), put(d);
        uint16_t w = next() & 0x7fff;
        __asm__ volatile("divb %1" : "+a"(w) : "q"((unsigned char)0xff) : "cc");
        put(w);
        uint64_t product = next(), top;
        __asm__ volatile("mulq %2" : "+a"(product), "=d"(top) : "r"(by) : "cc");
        put(product), put(top);
    }
    report("divisions");
}

static void floating(void)
{
    for (int i = 1; i < 500; i++) {
        double a = i * 0.37, b = 500.0 / i, r;
        uint16_t status;
        __asm__ volatile("fldl %2\n fldl %1\n fyl2x\n frndint\n fstpl %0" : "=m"(r) : "m"(a), "m"(b));
        put(*(uint64_t *)&r);
        __asm__ volatile("fldl %1\n fsincos\n fpatan\n fstpl %0" : "=m"(r) : "m"(a));
        put(*(uint64_t *)&r);
        __asm__ volatile("fldl %3\n fldl %2\n fprem\n fstsw %%ax\n fstpl %0\n fstp %%st(0)" : "=m"(r), "=a"(status) : "m"(a), "m"(b));
        put(*(uint64_t *)&r), put(status & 0x4700);
        __asm__ volatile("fldl %2\n fldl %1\n fcomip %%st(1), %%st\n fcmovb %%st(0), %%st\n fstpl %0" : "=m"(r) : "m"(a), "m"(b) : "cc");
        put(*(uint64_t *)&r);
        unsigned char decimal[10];
        __asm__ volatile("fldl %1\n fbstp %0" : "=m"(decimal) : "m"(b));
        for (int k = 0; k < 10; k++)
            put(decimal[k]);
        long double l = a;
        put((uint64_t)(l * 1e9L));
    }
    uint16_t environment[14];
    __asm__ volatile("fnstenv %0\n fldenv %0" : "+m"(environment));
    put(environment[0]), put(environment[2]);
    report("x87");
}

static void segments(void)
{
    uint64_t a = ~0ull, b = ~0ull;
    __asm__ volatile("movl %%cs, %k0\n movl %%ss, %k1" : "+r"(a), "+r"(b));
    put(a), put(b);
    uint16_t c, d;
    __asm__ volatile("movw %%ds, %0\n movw %%es, %1" : "=r"(c), "=r"(d));
    put(c), put(d);
    __asm__ volatile("movw %0, %%ds\n movw %1, %%es" ::"r"((uint16_t)0), "r"((uint16_t)0));
    uint64_t flags;
    uint32_t limit = 0, rights = 0;
    __asm__ volatile("lsl %k3, %k1\n lar %k3, %k2\n verr %w3\n pushfq\n popq %0" : "=r"(flags), "+r"(limit), "+r"(rights) : "r"(a) : "cc");
    put(limit), put(rights), put(flags & 0x40);
    uint64_t selector;
    __asm__ volatile("pushq %%fs\n popq %0\n pushw %%gs\n popw %%gs" : "=r"(selector)::"memory");
    put(selector);
    report("segments");
}

static void hints(void)
{
    static char line[64];
    for (int i = 0; i < 10; i++)
        __asm__ volatile("prefetcht0 %0\n prefetcht1 %0\n prefetchnta %0\n prefetchw %0\n clflush %0\n mfence\n lfence\n sfence\n pause\n"
                         "nopw 0x0(%%rax,%%rax,1)\n nopl 0x12345678(%%rax)\n .byte 0x66, 0x66, 0x66, 0x90\n xchgw %%ax, %%ax\n"
                         ".byte 0xf3, 0x0f, 0x1e, 0xfa\n" /* endbr64 */
                         ".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8\n" /* rdsspq rax: a nop without shadow stacks */
                         : "+m"(line)::"rax", "memory");
    put(line[0]);
    report("hints");
}

static void vectors(void)
{
    unsigned char a[16], b[16], r[16];
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < 16; k++)
            a[k] = next(), b[k] = next();
        uint64_t g, f;
        __asm__ volatile("movdqu %2, %%xmm8\n movdqu %3, %%xmm9\n pmaddwd %%xmm9, %%xmm8\n packuswb %%xmm9, %%xmm8\n psadbw %%xmm8, %%xmm9\n"
                         "pshufhw $0x1b, %%xmm9, %%xmm9\n movdqu %%xmm8, %0\n pmovmskb %%xmm9, %k1" : "=m"(r), "=r"(g) : "m"(a), "m"(b) : "xmm8", "xmm9");
        for (int k = 0; k < 16; k++)
            put(r[k]);
        put(g);
        __asm__ volatile("movdqu %2, %%xmm0\n movdqu %3, %%xmm1\n ucomisd %%xmm1, %%xmm0\n" FLAGS "cvttsd2si %%xmm0, %1\n"
                         : [f] "=r"(f), "=r"(g) : "m"(a), "m"(b) : "xmm0", "xmm1", "cc");
        put(f & 0x45), put(g);
        if (__builtin_cpu_supports("sse4.2")) {
            uint64_t index;
            __asm__ volatile("movdqu %2, %%xmm1\n movdqu %3, %%xmm2\n pcmpistri $0x0c, %%xmm2, %%xmm1\n" FLAGS : [f] "=r"(f), "=c"(index) : "m"(a), "m"(b) : "xmm1", "xmm2", "cc");
            put(index), put(f & 0x8d5);
            uint64_t crc = i;
            __asm__ volatile("crc32q %1, %0\n crc32b %b1, %k0" : "+r"(crc) : "r"(next()));
            put(crc);
        }
        unsigned char *to = r;
        __asm__ volatile("movdqu %0, %%xmm0\n movdqu %1, %%xmm1\n maskmovdqu %%xmm1, %%xmm0" ::"m"(a), "m"(b), "D"(to) : "xmm0", "xmm1", "memory");
        for (int k = 0; k < 16; k++)
            put(r[k]);
        __asm__ volatile("movq %1, %%mm0\n movq %2, %%mm1\n pmulhw %%mm1, %%mm0\n movq %%mm0, %0\n emms" : "=m"(g) : "m"(a), "m"(b) : "mm0", "mm1");
        put(g);
    }
    report("vectors");
}

__attribute__((target("avx2"))) static void wide_vectors(void)
{
    if (!__builtin_cpu_supports("avx2")) {
        say("# no AVX2");
        return;
    }
    int table[256], index[8], out[8];
    for (int i = 0; i < 256; i++)
        table[i] = next();
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 8; k++)
            index[k] = next() & 255;
        __asm__ volatile("vmovdqu %1, %%ymm1\n vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n vpxor %%xmm0, %%xmm0, %%xmm0\n"
                         "vpgatherdd %%ymm2, (%2,%%ymm1,4), %%ymm0\n vmovdqu %%ymm0, %0\n vzeroupper"
                         : "=m"(out) : "m"(index), "r"(table), "m"(table) : "xmm0", "xmm1", "xmm2");
        uint64_t sum = 0;
        for (int k = 0; k < 8; k++)
            sum += (uint32_t)out[k] - (uint32_t)table[index[k]];
        CHECK_EQ(sum, 0, "gather");
        static int rip_table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        __asm__ volatile("vmovdqu %1, %%ymm1\n vpaddd %2, %%ymm1, %%ymm1\n vpermd %%ymm1, %%ymm1, %%ymm1\n vmovdqu %%ymm1, %0\n vzeroupper"
                         : "=m"(out) : "m"(index), "m"(rip_table) : "xmm1");
        for (int k = 0; k < 8; k++)
            sum += out[k];
        if (__builtin_cpu_supports("bmi2")) {
            uint64_t r;
            __asm__ volatile("pdepq %2, %1, %0\n pextq %2, %0, %0\n rorxq $7, %0, %0\n shlxq %1, %0, %0\n andnq %0, %2, %0\n blsrq %0, %0"
                             : "=&r"(r) : "r"((uint64_t)out[0]), "r"((uint64_t)table[i]) : "cc");
        }
    }
}

int main(void)
{
    hash = 0xcbf29ce484222325;
    decimal_and_flags();
    bit_instructions();
    exchanges();
    divisions();
    floating();
    segments();
    hints();
    vectors();
    wide_vectors();
    return done();
}

/* Promise: F7 */
