//@ variants: pie static
//@ cflags: -O1
/* Flags and registers across control transfers whose target has never been executed: each combination
 * runs in code of its own, once cold and once warm, in read-only code, in writable code, and in code that
 * is written over other code that has just run. */
#include "check.h"

enum { CF = 1, PF = 4, AF = 0x10, ZF = 0x40, SF = 0x80, DF = 0x400, OF = 0x800, ALL = CF | PF | AF | ZF | SF | DF | OF };
static const unsigned bits[] = {CF, PF, AF, ZF, SF, OF, DF};

enum { JUMP, JUMP_INDIRECT, CALL, CALL_INDIRECT, RETURN, BRANCHES, LOOP, COUNT_ZERO, SYSTEM_CALL,
       COMPARED_IN_CALLEE, CARRIED_OUT, LONG_WAY, KINDS };
static const char *const names[] = {"jump", "indirect jump", "call", "indirect call", "return", "branches",
    "loop", "jrcxz", "system call", "flags set by the callee", "carry set by the callee", "a long block"};

static unsigned char *at;
static void put(const char *bytes, size_t count) { memcpy(at, bytes, count), at += count; }
#define PUT(text) put(text, sizeof text - 1)
static void rel32(const unsigned char *target)
{
    int32_t distance = target - (at + 4);
    memcpy(at, &distance, 4);
    at += 4;
}

/* uint64_t f(uint64_t flags, uint64_t *registers): loads flags and ten registers, goes through the
 * transfer, stores the registers back and returns the flags. Callee-saved registers stay as they are. */
static const unsigned char *emit(int kind)
{
    unsigned char *leaf = at;
    if (kind == COMPARED_IN_CALLEE)
        PUT("\x48\x39\xd1"); /* cmp rcx, rdx */
    if (kind == CARRIED_OUT)
        PUT("\xf9"); /* stc */
    PUT("\xc3");
    while ((uintptr_t)at % 16)
        PUT("\xcc");
    const unsigned char *entry = at;
    PUT("\x56\x57");                 /* push rsi, kept; push rdi, the flags */
    PUT("\x48\x8b\x06");             /* mov rax, [rsi] */
    PUT("\x48\x8b\x4e\x08");         /* mov rcx, [rsi+8] */
    PUT("\x48\x8b\x56\x10");         /* mov rdx, [rsi+16] */
    PUT("\x4c\x8b\x46\x18");         /* mov r8, [rsi+24] */
    PUT("\x4c\x8b\x4e\x20");         /* mov r9, [rsi+32] */
    PUT("\x4c\x8b\x56\x28");         /* mov r10, [rsi+40] */
    PUT("\x4c\x8b\x5e\x30");         /* mov r11, [rsi+48] */
    PUT("\x9d");                     /* popfq */
    switch (kind) {
    case JUMP:
        PUT("\xe9\x40\0\0\0");
        memset(at, 0xcc, 64), at += 64;
        break;
    case JUMP_INDIRECT: /* lea rdi, [rip+34]; jmp rdi */
        PUT("\x48\x8d\x3d\x22\0\0\0\xff\xe7");
        memset(at, 0xcc, 32), at += 32;
        break;
    case CALL: case COMPARED_IN_CALLEE: case CARRIED_OUT:
        PUT("\xe8"), rel32(leaf);
        break;
    case CALL_INDIRECT: /* lea rdi, [leaf]; call rdi */
        PUT("\x48\x8d\x3d"), rel32(leaf);
        PUT("\xff\xd7");
        break;
    case RETURN: /* lea rdi, [rip+2]; push rdi; ret */
        PUT("\x48\x8d\x3d\x02\0\0\0\x57\xc3");
        break;
    case BRANCHES: /* jc over jnc, jnc over int3: one of them is taken */
        PUT("\x72\x03\x73\x01\xcc");
        break;
    case LOOP: /* mov rdi, rcx; mov ecx, 3; loop -2; mov rcx, rdi */
        PUT("\x48\x89\xcf\xb9\x03\0\0\0\xe2\xfe\x48\x89\xf9");
        break;
    case COUNT_ZERO: /* mov rdi, rcx; mov ecx, 0; jrcxz +1; int3; mov rcx, rdi */
        PUT("\x48\x89\xcf\xb9\0\0\0\0\xe3\x01\xcc\x48\x89\xf9");
        break;
    case SYSTEM_CALL: /* keep rax rcx r11: push them, getpid, pop */
        PUT("\x50\x51\x41\x53\xb8\x27\0\0\0\x0f\x05\x41\x5b\x59\x58");
        break;
    case LONG_WAY: /* 300 times lea rdi, [rdi+1] */
        for (int i = 0; i < 300; i++)
            PUT("\x48\x8d\x7f\x01");
        break;
    }
    PUT("\x5e\x9c");                 /* pop rsi; pushfq */
    PUT("\x48\x89\x06");             /* mov [rsi], rax ... */
    PUT("\x48\x89\x4e\x08\x48\x89\x56\x10\x4c\x89\x46\x18\x4c\x89\x4e\x20\x4c\x89\x56\x28\x4c\x89\x5e\x30");
    PUT("\x58\xfc\xc3");             /* pop rax; cld; ret */
    while ((uintptr_t)at % 16)
        PUT("\xcc");
    return entry;
}

static uint64_t compare_flags(uint64_t a, uint64_t b)
{
    uint64_t flags;
    __asm__ volatile("cmpq %2, %1\n pushfq\n popq %0" : "=r"(flags) : "r"(a), "r"(b) : "cc");
    return flags;
}

static uint64_t wanted(int kind, uint64_t flags, const uint64_t *registers)
{
    if (kind == COMPARED_IN_CALLEE)
        return (compare_flags(registers[1], registers[2]) & ~(uint64_t)DF) | (flags & DF);
    return kind == CARRIED_OUT ? flags | CF : flags;
}

static unsigned char *region;
enum { SIZE = 1 << 20 };
static const char *memory_name;

static void both_ways(int kind, uint64_t flags, unsigned salt, const unsigned char *code)
{
    for (int again = 0; again < 2; again++) {
        uint64_t registers[7], before[7];
        for (int i = 0; i < 7; i++)
            before[i] = registers[i] = 0x0123456789abcdefull * (i + salt + 1) ^ 0x8000000000000000ull >> salt % 9;
        uint64_t want = wanted(kind, flags, before);
        uint64_t got = ((uint64_t(*)(uint64_t, uint64_t *))code)(flags, registers);
        const char *how = again ? "warm" : "cold";
        CHECK_EQ(got & ALL, want & ALL, "%s, %s, %s code: flags %#lx", names[kind], how, memory_name, flags);
        for (int i = 0; i < 7; i++)
            CHECK_EQ(registers[i], before[i], "%s, %s, %s code: register %d of rax rcx rdx r8-r11", names[kind], how, memory_name, i);
    }
}

static uint64_t flag_set(unsigned number)
{
    uint64_t flags = 0x202;
    for (int bit = 0; bit < 7; bit++)
        if (number >> bit & 1)
            flags |= bits[bit];
    return flags;
}

static void in_own_memory(bool is_writable)
{
    for (int kind = 0; kind < KINDS; kind++) {
        region = map_pages(SIZE, PROT_READ | PROT_WRITE | (is_writable ? PROT_EXEC : 0));
        const unsigned char *code[128];
        at = region;
        for (int set = 0; set < 128; set++)
            code[set] = emit(kind);
        MUST(at < region + SIZE);
        if (!is_writable)
            MUST(mprotect(region, SIZE, PROT_READ | PROT_EXEC) == 0);
        for (int set = 0; set < 128; set++)
            both_ways(kind, flag_set(set), set, code[set]);
        munmap(region, SIZE);
    }
}

/* The order of kinds changes from one use of the memory to the next, so that old and new code differ. */
static void over_other_code(bool by_protection)
{
    region = map_pages(SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int set = 0; set < 128; set++)
        for (int kind = 0; kind < KINDS; kind++) {
            int chosen = (kind * 5 + set) % KINDS;
            if (by_protection)
                MUST(mprotect(region, SIZE, PROT_READ | PROT_WRITE) == 0);
            at = region;
            const unsigned char *code = emit(chosen);
            if (by_protection)
                MUST(mprotect(region, SIZE, PROT_READ | PROT_EXEC) == 0);
            both_ways(chosen, flag_set(set), set, code);
        }
    munmap(region, SIZE);
}

static void read_only(void)
{
    memory_name = "read-only";
    in_own_memory(false);
}
static void writable(void)
{
    memory_name = "writable";
    in_own_memory(true);
}
static void rewritten(void)
{
    memory_name = "rewritten";
    over_other_code(false);
}
static void protected(void)
{
    memory_name = "rewritten under protection";
    over_other_code(true);
}

int main(void)
{
    RUN(read_only);
    RUN(writable);
    RUN(rewritten);
    RUN(protected);
    return done();
}

/* Promise: F7, F8 */
