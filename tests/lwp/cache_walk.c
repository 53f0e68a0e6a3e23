/* Memory accesses of several shapes, counted by a cache model: this one's through event 4 (with -DLWP),
 * cachegrind's on the same program without the two LWP instructions, for which it has NOPs of the same
 * length. Without a C library, so that nothing else touches memory.
 *
 * With -DLWP the control block goes to standard output at the end; its counter of event 4 tells how many
 * loads missed. -DLATENCY=n sets MinLatency, -DALIGN=8 keeps every access within a line. */

typedef unsigned long u64;
typedef unsigned int u32;

#ifndef LATENCY
#define LATENCY 0
#endif
#ifndef ALIGN
#define ALIGN 1
#endif

enum { SIDE = 24, NODES = 1500, TABLE = 40000 };

static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
static struct node { struct node *next; u64 value[5]; } nodes[NODES];
static u32 table[TABLE];

/* Flags: event 4; ring of 1024 bytes; the counter is the largest there is, so that nothing expires. */
static unsigned char ring[1024];
static struct { u32 word[48]; } block = { .word = { 1 << 4, 1024, 0, 0, 0, 0, 0, 0, ~0u, LATENCY } };

static void multiply(void)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = c[i][j];
            for (int k = 0; k < SIDE; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

static u64 chase(void)
{
    u64 sum = 0;
    for (int i = 0; i < NODES; i++)
        nodes[i].next = &nodes[(i * 997 + 1) % NODES];
    struct node *at = nodes;
    for (int i = 0; i < 2 * NODES; i++, at = at->next)
        sum += at->value[i % 5]++;
    return sum;
}

/* Read-modify-write at random places, and loads that straddle lines unless ALIGN is 8. */
static u64 scatter(void)
{
    u64 state = 88172645463325252u, sum = 0;
    for (int i = 0; i < 6000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        u32 at = state >> 20;
        table[at % TABLE] += i;
        sum += *(u64 *)((char *)table + at % (4 * TABLE - 8) / ALIGN * ALIGN);
    }
    return sum;
}

/* A string move, which one instruction does. */
static void move(void)
{
    void *to = c, *from = a;
    u64 count = sizeof a / 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static u64 work(void)
{
    multiply();
    u64 sum = chase() + scatter();
    move();
    return sum;
}

static long system_call(long number, long first, const void *second, long third)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noreturn, used)) static void begin(void)
{
    u64 sum;
#ifdef LWP
    block.word[2] = (u32)(u64)ring;
    block.word[38] = block.word[39] = 0x1ffffff;
    __asm__ volatile("llwpcb %0" : : "a"(&block) : "memory");
    sum = work();
    __asm__ volatile("llwpcb %0" : : "a"(0l) : "memory");
    system_call(1, 1, &block, sizeof block);
#else
    sum = work();
#endif
    system_call(60, sum == 42, 0, 0);
    __builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-64, %rsp\n call begin\n");
