//@ variants: pie static
/* REP string instructions: all widths, both directions, zero length, overlapping, unaligned, across
 * pages, with flags and counts as the manual says. */
#include "check.h"

struct result { uint64_t rsi, rdi, rcx, rax, flags; };
typedef void stringer(struct result *r, const void *rsi, void *rdi, uint64_t rcx, uint64_t rax, uint64_t flags);
/* rdi = result, rsi, rdx = rdi, rcx, r8 = rax, r9 = flags */
__asm__(".text\n.macro S name:req, text:vararg\n.globl \\name\n\\name: movq %rdi, %r10\n movq %rdx, %rdi\n movq %r8, %rax\n"
        " pushq %r9\n popfq\n \\text\n pushfq\n popq 32(%r10)\n cld\n movq %rsi, (%r10)\n movq %rdi, 8(%r10)\n movq %rcx, 16(%r10)\n movq %rax, 24(%r10)\n ret\n.endm\n"
        "S s_movsb, rep movsb\nS s_movsw, rep movsw\nS s_movsl, rep movsl\nS s_movsq, rep movsq\n"
        "S s_stosb, rep stosb\nS s_stosw, rep stosw\nS s_stosl, rep stosl\nS s_stosq, rep stosq\n"
        "S s_lodsb, rep lodsb\nS s_lodsq, rep lodsq\n"
        "S s_scasb, repne scasb\nS s_scase, repe scasb\nS s_scasq, repne scasq\n"
        "S s_cmpsb, repe cmpsb\nS s_cmpsne, repne cmpsb\nS s_cmpsq, repe cmpsq\n"
        "S s_one_movsb, movsb\nS s_one_stosq, stosq\nS s_one_lodsw, lodsw\nS s_one_scasb, scasb\nS s_one_cmpsl, cmpsl\n"
        "S s_movsb32, addr32 rep movsb\n");
stringer s_movsb, s_movsw, s_movsl, s_movsq, s_stosb, s_stosw, s_stosl, s_stosq, s_lodsb, s_lodsq,
    s_scasb, s_scase, s_scasq, s_cmpsb, s_cmpsne, s_cmpsq, s_one_movsb, s_one_stosq, s_one_lodsw,
    s_one_scasb, s_one_cmpsl, s_movsb32;
static const struct { const char *name; stringer *run; int width; } all[] = {
    {"movsb", s_movsb, 1}, {"movsw", s_movsw, 2}, {"movsl", s_movsl, 4}, {"movsq", s_movsq, 8},
    {"stosb", s_stosb, 1}, {"stosw", s_stosw, 2}, {"stosl", s_stosl, 4}, {"stosq", s_stosq, 8},
    {"lodsb", s_lodsb, 1}, {"lodsq", s_lodsq, 8}, {"scasb", s_scasb, 1}, {"repe scasb", s_scase, 1},
    {"scasq", s_scasq, 8}, {"cmpsb", s_cmpsb, 1}, {"repne cmpsb", s_cmpsne, 1}, {"cmpsq", s_cmpsq, 8},
    {"one movsb", s_one_movsb, 1}, {"one stosq", s_one_stosq, 8}, {"one lodsw", s_one_lodsw, 2},
    {"one scasb", s_one_scasb, 1}, {"one cmpsl", s_one_cmpsl, 4},
};

static unsigned char *area;
enum { AREA = 6 * 4096 };

static void fill(void)
{
    for (int i = 0; i < AREA; i++)
        area[i] = i * 7 ^ i >> 5;
    memset(area + 8192, 0x41, 3000);
    memcpy(area + 16384, area + 8192, 4000);
}

static uint64_t hash(uint64_t h)
{
    for (int i = 0; i < AREA; i += 8) {
        uint64_t word;
        memcpy(&word, area + i, 8);
        h = (h ^ word) * 0x100000001b3;
    }
    return h;
}

/* Every instruction with counts, offsets and directions; everything visible goes into one number. */
static void sweep(void)
{
    static const uint64_t counts[] = {0, 1, 2, 7, 64, 300};
    static const int offsets[] = {0, 1, 4090, 4096, 8100, 8192};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        uint64_t h = 0;
        for (int backwards = 0; backwards < 2; backwards++)
            for (size_t c = 0; c < 6; c++)
                for (size_t o = 0; o < 6; o++)
                    for (size_t p = 0; p < 6; p += 2) {
                        if (backwards && offsets[o] < 4096)
                            continue;
                        struct result r;
                        fill();
                        uint64_t flags = backwards ? 0x602 : 0x203;
                        all[f].run(&r, area + offsets[o] + 4096, area + 8192 + offsets[p], counts[c], 0x4141414141414141 + c, flags);
                        h = h * 31 + (r.rsi - (uintptr_t)area);
                        h = h * 31 + (r.rdi - (uintptr_t)area);
                        h = h * 31 + r.rcx;
                        h = h * 31 + r.rax;
                        h = h * 31 + (r.flags & 0xcd5);
                        h = hash(h);
                    }
        say("%s %016lx", all[f].name, h);
    }
}

static void expect(struct result r, uint64_t rsi, uint64_t rdi, uint64_t rcx, const char *what)
{
    CHECK_EQ(r.rsi - (uintptr_t)area, rsi, "%s: rsi", what);
    CHECK_EQ(r.rdi - (uintptr_t)area, rdi, "%s: rdi", what);
    CHECK_EQ(r.rcx, rcx, "%s: rcx", what);
}

static void known(void)
{
    struct result r;
    fill();
    s_movsb(&r, area, area + 100, 0, 0, 0x202);
    expect(r, 0, 100, 0, "zero length");
    s_movsb(&r, area, area + 1, 50, 0, 0x202);
    expect(r, 50, 51, 0, "overlapping");
    for (int i = 1; i <= 50; i++)
        CHECK_EQ(area[i], area[0], "an overlapping copy spreads the first byte");
    fill();
    s_movsb(&r, area + 100, area + 200, 50, 0, 0x602);
    expect(r, 50, 150, 0, "backwards");
    CHECK(memcmp(area + 51, area + 151, 50) == 0, "backwards copy");
    memset(area, 'a', 100);
    area[42] = 'b';
    s_scasb(&r, area, area, 100, 'b', 0x202);
    expect(r, 0, 43, 57, "scan");
    CHECK_EQ(r.flags & 0x40, 0x40, "scan found");
    s_scasb(&r, area, area, 20, 'b', 0x202);
    expect(r, 0, 20, 0, "scan to the end");
    CHECK_EQ(r.flags & 0x40, 0, "scan did not find");
    s_scasb(&r, area, area, 0, 'b', 0x246);
    CHECK_EQ(r.flags & 0x40, 0x40, "a scan of nothing keeps the flags");
    memcpy(area + 200, area, 100);
    area[250] = 'c';
    s_cmpsb(&r, area, area + 200, 100, 0, 0x202);
    expect(r, 51, 251, 49, "compare");
    s_cmpsb(&r, area, area + 200, 42, 0, 0x202);
    expect(r, 42, 242, 0, "compare equal");
    s_lodsb(&r, area + 40, area, 3, 0, 0x202);
    CHECK_EQ(r.rax, 'b', "rep lodsb leaves the last byte");
}

static void wide_counts(void)
{
    /* A large fill and copy in one instruction each. */
    size_t bytes = 64 << 20;
    unsigned char *a = map_pages(bytes, PROT_READ | PROT_WRITE), *b = map_pages(bytes, PROT_READ | PROT_WRITE);
    struct result r;
    s_stosb(&r, a, a, bytes, 0x5a, 0x202);
    CHECK_EQ(r.rcx, 0, "rcx");
    s_movsq(&r, a, b, bytes / 8, 0, 0x202);
    CHECK_EQ(b[bytes - 1], 0x5a, "the last byte");
    b[bytes - 3] = 1;
    s_cmpsb(&r, a, b, bytes, 0, 0x202);
    CHECK_EQ(r.rcx, 2, "where they differ");
    munmap(a, bytes), munmap(b, bytes);
}

static volatile int ticks;
static uintptr_t seen_rip_low = ~0ull, seen_rip_high;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    uintptr_t rip = regs_of(context)[REG_RIP];
    if (regs_of(context)[REG_RCX] != 0) {
        if (rip < seen_rip_low) seen_rip_low = rip;
        if (rip > seen_rip_high) seen_rip_high = rip;
    }
    ticks++;
}

static void interrupted(void)
{
    /* A signal may arrive in the middle of a REP; the work is done exactly once. */
    size_t bytes = 8 << 20;
    unsigned char *a = map_pages(bytes, PROT_READ | PROT_WRITE), *b = map_pages(bytes, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < bytes; i++)
        a[i] = i * 31 >> 3;
    on_signal(SIGALRM, tick, 0);
    struct itimerval timer = {{0, 300}, {0, 300}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    double end = patience();
    while (ticks < 300 && now_seconds() < end) {
        struct result r;
        memset(b, 0, bytes);
        s_movsb(&r, a, b, bytes - 3, 0, 0x202);
        CHECK_EQ(r.rcx, 0, "rcx");
        CHECK_EQ(r.rdi - (uintptr_t)b, bytes - 3, "rdi");
        CHECK(memcmp(a, b, bytes - 3) == 0 && b[bytes - 1] == 0, "contents");
        if (check_failures)
            break;
    }
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks >= 300, "only %d signals", ticks);
}

int main(void)
{
    area = map_pages(AREA, PROT_READ | PROT_WRITE);
    RUN(sweep);
    RUN(known);
    RUN(wide_counts);
    RUN(interrupted);
    return done();
}
