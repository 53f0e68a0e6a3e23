//@ variants: static
//@ cflags: -O1 -D_GNU_SOURCE
/* Generated code that changes beside what it is entered from: blocks before it that leave the flags to it, edges that
 * fall into it, and words in its page that are no code. */
#include "check.h"

enum { ROUNDS = 400 };

static unsigned char *page;

static void put(size_t at, const unsigned char *bytes, size_t length)
{
    memcpy(page + at, bytes, length);
}

/* Calls the code at `at` with the carry flag set as asked. */
static long call(size_t at, long first, long second, long carry)
{
    long result = 0;
    __asm__ volatile("add $-1, %[carry]\n\t"
                     "call *%[code]"
                     : "+a"(result), [carry] "+r"(carry), "+D"(first), "+S"(second)
                     : [code] "r"(page + at)
                     : "rcx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
    return result;
}

/* A block overwrites the one behind it, which overwrote the flags before and reads them from then on. */
static void by_itself(void)
{
    static const unsigned char writer[] = {
        0x48, 0x89, 0x37,             /* mov [rdi], rsi */
        0xe9, 0x38, 0x00, 0x00, 0x00, /* jmp 64 */
    };
    static const unsigned char clears[8] = {0x31, 0xc0, 0xc3};        /* xor eax, eax; ret */
    static const unsigned char reads[2][8] = {
        {0x19, 0xc0, 0x90, 0xc3}, /* sbb eax, eax; nop; ret */
        {0x0f, 0x94, 0xc0, 0xc3}, /* sete al; ret */
    };
    static const unsigned char edge[] = {
        0x48, 0x89, 0x37, /* mov [rdi], rsi */
        0x7b, 0x02,       /* jnp 66: never */
    };
    for (int kind = 0; kind < 4; kind++) {
        page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
        put(0, writer, sizeof writer);
        if (kind >= 2)
            put(64 - sizeof edge, edge, sizeof edge);
        size_t at = kind >= 2 ? 64 - sizeof edge : 0;
        long clear, read, sum = 0;
        memcpy(&clear, clears, 8);
        memcpy(&read, reads[kind % 2], 8);
        for (int round = 0; round < ROUNDS; round++) {
            int reading = round % 7 == 3;
            sum += call(at, (long)(page + 64), reading ? read : clear, round & 1) & 0xff;
        }
        say("by itself: %ld", sum);
    }
}

/* An edge falls into a block that changes now and then, and so does what the edge comes from. */
static void behind_an_edge(void)
{
    static const unsigned char code[] = {
        0x48, 0x85, 0xff,             /* test rdi, rdi */
        0x74, 0x05,                   /* jz 10 */
        0xb8, 0x01, 0x00, 0x00, 0x00, /* mov eax, 1 */
        0x48, 0x01, 0xf0,             /* 10: add rax, rsi */
        0xc3,
    };
    long sum = 0;
    put(0, code, sizeof code);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 5 == 0)
            page[6] = round;
        if (round % 11 == 0)
            page[12] = round % 2 ? 0xf0 : 0xf8; /* rsi or rdi */
        sum += call(0, round % 3, 1000, 0) & 0xffff;
    }
    say("behind an edge: %ld", sum);
}

/* The page is written to and its code stays what it is; now and then it does not. */
static void beside(void)
{
    static const unsigned char code[] = {
        0x89, 0xf9,                   /* mov ecx, edi */
        0x31, 0xc0,                   /* xor eax, eax */
        0xff, 0xc9,                   /* 4: dec ecx */
        0x78, 0x0a,                   /* js 18 */
        0x83, 0xc0, 0x03,             /* add eax, 3 */
        0xf6, 0xc1, 0x01,             /* test cl, 1 */
        0x74, 0xf4,                   /* jz 4 */
        0xeb, 0xf2,                   /* jmp 4 */
        0xc3,                         /* 18: ret */
    };
    long sum = 0;
    put(0, code, sizeof code);
    for (int round = 0; round < ROUNDS; round++) {
        *(volatile int *)(page + 2048) = round;
        if (round % 50 == 49)
            page[10] = round / 50;
        sum += call(0, round % 40, 0, 0) & 0xffff;
    }
    say("beside: %ld", sum);
}

int main(void)
{
    by_itself();
    page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    behind_an_edge();
    beside();
    return 0;
}
