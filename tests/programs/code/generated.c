//@ variants: pie static
//@ cflags: -O1
/* Pseudo-random routines of integer instructions, branches, calls and stack operations. The same bytes
 * run on the same processor, so every register and flag must come out the same. */
#include "check.h"

static uint64_t seed;
static uint32_t pick(uint32_t limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint64_t)(uint32_t)(seed >> 32) * limit >> 32;
}

static unsigned char *at;
static void byte(int b) { *at++ = b; }
static void word32(uint32_t w) { memcpy(at, &w, 4); at += 4; }

/* Registers the generator may use: all but rsp and r15, which points to data. */
static int reg(void)
{
    int r;
    do
        r = pick(15);
    while (r == 4);
    return r;
}

static void rex(int w, int r, int x, int b) { byte(0x40 | w << 3 | (r >> 3) << 2 | (x >> 3) << 1 | b >> 3); }
static void modrm(int mod, int r, int rm) { byte(mod << 6 | (r & 7) << 3 | (rm & 7)); }
/* [r15 + disp32], within 4 KiB */
static void data_operand(int r) { modrm(2, r, 15); word32(pick(4000)); }

static void arithmetic(void)
{
    static const unsigned char ops[] = {0x01, 0x03, 0x09, 0x0b, 0x11, 0x13, 0x19, 0x1b, 0x21, 0x23, 0x29, 0x2b, 0x31, 0x33, 0x39, 0x3b, 0x85, 0x87, 0x89, 0x8b};
    int op = ops[pick(sizeof ops)] - (pick(4) == 0);
    int r = reg(), m = reg(), wide = pick(2);
    if (pick(6) == 0)
        byte(0x66), wide = 0;
    if (pick(3) == 0) {
        rex(wide, r, 0, 15);
        byte(op);
        data_operand(r);
    } else {
        rex(wide, r, 0, m);
        byte(op);
        modrm(3, r, m);
    }
}

static void immediate(void)
{
    int m = reg(), op = pick(8), wide = pick(2);
    rex(wide, 0, 0, m);
    if (pick(2)) {
        byte(0x83);
        modrm(3, op, m);
        byte(pick(256));
    } else {
        byte(0x81);
        modrm(3, op, m);
        word32(seed >> 20);
    }
}

static void shift(void)
{
    static const unsigned char ops[] = {0xc1, 0xd1, 0xd3};
    int op = ops[pick(3)], m = reg();
    rex(pick(2), 0, 0, m);
    byte(op);
    modrm(3, pick(8), m);
    if (op == 0xc1)
        byte(pick(256));
}

static void unary(void)
{
    int m = reg();
    switch (pick(6)) {
    case 0: rex(pick(2), 0, 0, m), byte(0xf7), modrm(3, 2 + pick(2), m); break;                /* not neg */
    case 1: rex(pick(2), 0, 0, m), byte(0xff), modrm(3, pick(2), m); break;                    /* inc dec */
    case 2: { int r = reg(); rex(pick(2), r, 0, m), byte(0x0f), byte(0xaf), modrm(3, r, m); break; } /* imul */
    case 3: rex(pick(2), 0, 0, m), byte(0xf7), modrm(3, 4 + pick(2), m); break;                /* mul imul */
    case 4: { int r = reg(); rex(pick(2), r, 0, m), byte(0x0f), byte(0xb6 + 8 * pick(2)), modrm(3, r, m); break; }
    case 5: { int r = reg(); rex(1, r, 0, m), byte(0x0f), byte(0x40 + pick(16)), modrm(3, r, m); break; } /* cmov */
    }
}

static void bits(void)
{
    int r = reg(), m = reg();
    switch (pick(6)) {
    case 0: rex(pick(2), r, 0, m), byte(0x0f), byte(0xa3 + 8 * pick(4)), modrm(3, r, m); break; /* bt bts btr btc */
    case 1: rex(1, r, 0, m), byte(0x0f), byte(0xa4 + 8 * pick(2)), modrm(3, r, m), byte(pick(64)); break; /* shld shrd */
    case 2: rex(pick(2), 0, 0, m), byte(0x0f), byte(0xc8 | (m & 7)); break;                     /* bswap */
    case 3: rex(0, 0, 0, m), byte(0x0f), byte(0x90 + pick(16)), modrm(3, 0, m); break;          /* setcc */
    case 4: rex(1, r, 0, m), byte(0x8d), modrm(2, r, m == 12 ? 13 : m), word32(seed >> 30); break; /* lea */
    case 5: rex(pick(2), r, 0, m), byte(0x0f), byte(0xc1), modrm(3, r, m); break;               /* xadd */
    }
}

static void flags_and_stack(void)
{
    int r = reg();
    switch (pick(7)) {
    case 0: rex(0, 0, 0, r), byte(0x50 | (r & 7)); { int o = reg(); rex(0, 0, 0, o), byte(0x58 | (o & 7)); } break;
    case 1: byte(0x9c), byte(0x9d); break;                       /* pushfq popfq */
    case 2: byte(0xf8 + pick(2)); break;                         /* clc stc */
    case 3: byte(0xf5); break;                                   /* cmc */
    case 4: byte(0x9f); break;                                   /* lahf */
    case 5: byte(0x9e); break;                                   /* sahf */
    case 6: byte(0xfc); break;                                   /* cld */
    }
}

static void rip_operand(unsigned char *data)
{
    int r = reg();
    static const unsigned char ops[] = {0x03, 0x0b, 0x13, 0x1b, 0x23, 0x2b, 0x33, 0x3b, 0x8b, 0x01, 0x29, 0x31, 0x89};
    rex(1, r, 0, 0);
    byte(ops[pick(sizeof ops)]);
    modrm(0, r, 5);
    word32(data + pick(500) * 8 - (at + 4));
}

static void straight(unsigned char *data)
{
    switch (pick(7)) {
    case 0: case 1: arithmetic(); break;
    case 2: immediate(); break;
    case 3: shift(); break;
    case 4: unary(); break;
    case 5: pick(2) ? bits() : flags_and_stack(); break;
    case 6: rip_operand(data); break;
    }
}

/* A forward branch over a few instructions, a call of a leaf, or an indirect jump ahead. */
static void branching(unsigned char *data, unsigned char *leaf)
{
    switch (pick(4)) {
    case 0: case 1: {
        byte(0x70 | pick(16));
        unsigned char *displacement = at++;
        int n = 1 + pick(3);
        for (int i = 0; i < n; i++)
            straight(data);
        *displacement = at - displacement - 1;
        break;
    }
    case 2:
        byte(0xe8);
        word32(leaf - (at + 4));
        break;
    case 3: { /* lea r, [rip+n]; jmp r; some bytes; target */
        int r = reg();
        rex(1, r, 0, 0), byte(0x8d), modrm(0, r, 5);
        unsigned char *displacement = at;
        at += 4;
        unsigned char *base = at;
        rex(0, 0, 0, r), byte(0xff), modrm(3, 4, r);
        int n = pick(12);
        for (int i = 0; i < n; i++)
            byte(0x0f);
        int32_t distance = at - base;
        memcpy(displacement, &distance, 4);
        /* The address differs from run to run: forget it. */
        rex(1, 0, 0, r), byte(0xc7), modrm(3, 0, r), word32(pick(1000));
        break;
    }
    }
}

/* Entry: rdi = 16 words (15 registers and flags) in and out, rsi = data. */
static void prologue(void)
{
    memcpy(at, "\x53\x55\x41\x54\x41\x55\x41\x56\x41\x57\x57", 11), at += 11; /* push rbx rbp r12-r15 rdi */
    memcpy(at, "\x49\x89\xf7", 3), at += 3;                                   /* mov r15, rsi */
    memcpy(at, "\xff\x77\x78\x9d", 4), at += 4;                               /* push [rdi+120]; popfq */
    static const int order[] = {0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14, 7};
    for (int i = 0; i < 14; i++) {
        int r = order[i];
        rex(1, r, 0, 7), byte(0x8b), modrm(1, r, 7), byte(r * 8);
    }
}

static void epilogue(void)
{
    memcpy(at, "\x9c\x57\x48\x8b\x7c\x24\x10", 7), at += 7; /* pushfq; push rdi; mov rdi, [rsp+16] */
    for (int r = 0; r < 15; r++)
        if (r != 4 && r != 7)
            rex(1, r, 0, 7), byte(0x89), modrm(1, r, 7), byte(r * 8);
    memcpy(at, "\x58\x48\x89\x47\x38\x58\x48\x89\x47\x78\xfc", 11), at += 11; /* pop rax; mov [rdi+56],rax; pop rax; mov [rdi+120],rax; cld */
    memcpy(at, "\x5f\x41\x5f\x41\x5e\x41\x5d\x41\x5c\x5d\x5b\xc3", 12), at += 12;
}

enum { CODE = 1 << 20 };
static unsigned char *code, *data;
static const unsigned flag_mask = 0x8d5;

static uint64_t routine(int number, int runs)
{
    seed = number * 0x9e3779b97f4a7c15ull + 1;
    at = code;
    unsigned char *leaves[4];
    for (int i = 0; i < 4; i++) {
        leaves[i] = at;
        for (int n = pick(6); n >= 0; n--)
            straight(data);
        byte(0xc3);
    }
    unsigned char *entry = at;
    prologue();
    int length = 20 + pick(200);
    for (int i = 0; i < length; i++)
        if (pick(4) == 0)
            branching(data, leaves[pick(4)]);
        else
            straight(data);
    epilogue();
    uint64_t registers[16], hash = 0;
    for (int i = 0; i < 16; i++)
        registers[i] = seed * (i + 3) ^ seed >> i;
    for (int run = 0; run < runs; run++) {
        registers[15] = 0x202 | (registers[0] & flag_mask);
        ((void (*)(uint64_t *, unsigned char *))entry)(registers, data);
        for (int i = 0; i < 16; i++)
            if (i != 4)
                hash = (hash ^ (i == 15 ? registers[i] & flag_mask : registers[i])) * 0x100000001b3;
    }
    for (int i = 0; i < 4096 + 8; i++)
        hash = (hash ^ data[i]) * 0x100000001b3;
    return hash;
}

int main(void)
{
    code = map_pages(CODE, PROT_READ | PROT_WRITE | PROT_EXEC);
    data = map_pages(8192, PROT_READ | PROT_WRITE);
    uint64_t total = 0;
    for (int number = 0; number < 1200; number++) {
        for (int i = 0; i < 8192; i++)
            data[i] = i * 11 + number;
        uint64_t hash = routine(number, 3);
        total = total * 31 + hash;
        if (number % 50 == 0)
            say("routine %d %016lx", number, hash);
    }
    say("all %016lx", total);
    return done();
}

/* Promise: F10 */
