//@ variants: pie static
/* CPUID, XGETBV, RDTSC, RDTSCP, RDPID, RDRAND, RDSEED: plausible, consistent, and only what is promised
 * may be missing. */
#include "check.h"
#include <cpuid.h>
#include <sys/auxv.h>

/* From the kernel: the C library changes what getauxval tells. */
static uint64_t hardware_capabilities(void)
{
    uint64_t pairs[128];
    int fd = open("/proc/self/auxv", O_RDONLY);
    MUST(fd >= 0);
    ssize_t got = read(fd, pairs, sizeof pairs);
    close(fd);
    for (size_t i = 0; i + 1 < got / sizeof *pairs; i += 2)
        if (pairs[i] == AT_HWCAP)
            return pairs[i + 1];
    return 0;
}

static void leaves(void)
{
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    CHECK(a >= 7 && a < 0x100, "highest leaf %#x", a);
    char vendor[13] = {0};
    memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
    CHECK(strspn(vendor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz !") == 12, "vendor %s", vendor);
    __cpuid(1, a, b, c, d);
    CHECK((d & (1 << 0 | 1 << 4 | 1 << 8 | 1 << 15 | 1 << 23 | 1 << 24 | 1 << 25 | 1 << 26)) == (1 << 0 | 1 << 4 | 1 << 8 | 1 << 15 | 1 << 23 | 1 << 24 | 1 << 25 | 1 << 26),
          "the base features of x86-64: %#x", d);
    CHECK_EQ(hardware_capabilities(), d, "AT_HWCAP");
    __cpuid(0x80000000, a, b, c, d);
    CHECK(a >= 0x80000004, "highest extended leaf %#x", a);
    __cpuid(0x80000001, a, b, c, d);
    CHECK(d & 1 << 29, "long mode");
    /* The upper halves of all four registers become zero. */
    uint64_t ra = ~0ull << 32, rb = ~0ull, rc = ~0ull << 32, rd = ~0ull;
    __asm__ volatile("cpuid" : "+a"(ra), "+b"(rb), "+c"(rc), "+d"(rd));
    CHECK((ra | rb | rc | rd) >> 32 == 0, "upper halves: %lx %lx %lx %lx", ra, rb, rc, rd);
}

static void stable(void)
{
    static const unsigned queried[][2] = {{0, 0}, {7, 0}, {7, 1}, {0xd, 0}, {0xd, 1}, {0xd, 2}, {4, 0}, {4, 1}, {0x80000001, 0}, {0x80000002, 0}, {0x80000008, 0}};
    for (size_t i = 0; i < sizeof queried / sizeof *queried; i++) {
        unsigned first[4], again[4];
        __cpuid_count(queried[i][0], queried[i][1], first[0], first[1], first[2], first[3]);
        for (int round = 0; round < 50; round++) {
            __cpuid_count(queried[i][0], queried[i][1], again[0], again[1], again[2], again[3]);
            CHECK(memcmp(first, again, sizeof first) == 0, "leaf %#x changes", queried[i][0]);
        }
    }
}

static void extended_state(void)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (!(c & 1 << 27)) {
        say("# no OSXSAVE");
        CHECK(!(c & 1 << 28), "AVX without OSXSAVE");
        return;
    }
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    CHECK((low & 3) == 3, "XCR0 has x87 and SSE: %#x", low);
    if (c & 1 << 28)
        CHECK(low & 4, "AVX is announced, so XCR0 has it: %#x", low);
    unsigned a7, b7, c7, d7;
    __cpuid_count(7, 0, a7, b7, c7, d7);
    if (b7 & 1 << 16)
        CHECK((low & 0xe0) == 0xe0, "AVX-512 is announced, so XCR0 has it: %#x", low);
    if (b7 & 1 << 5)
        CHECK(low & 4, "AVX2 needs the state of AVX");
    __cpuid_count(0xd, 0, a, b, c, d);
    CHECK_EQ(a & low, low, "leaf 0xd has every state of XCR0");
    CHECK(b >= 576 && b <= c, "size of the enabled state: %u of %u", b, c);
    /* The area that XSAVE writes is as large as announced, and holds MXCSR. */
    static unsigned char area[32768] __attribute__((aligned(64)));
    memset(area, 0xee, sizeof area);
    MUST(b < sizeof area);
    memset(area + 512, 0, 64);
    __asm__ volatile("xsave %0" : "=m"(area) : "a"(-1), "d"(-1) : "memory");
    CHECK(area[b] == 0xee && area[sizeof area - 1] == 0xee, "nothing is written beyond %u bytes", b);
    uint32_t mxcsr;
    memcpy(&mxcsr, area + 24, 4);
    CHECK_EQ(mxcsr, 0x1f80, "MXCSR in the area");
    __asm__ volatile("xrstor %0" ::"m"(area), "a"(3), "d"(0) : "memory");
}

static void time_stamps(void)
{
    uint64_t last = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t low = ~0ull, high = ~0ull;
        __asm__ volatile("lfence\n rdtsc" : "+a"(low), "+d"(high));
        CHECK(low >> 32 == 0 && high >> 32 == 0, "rdtsc clears the upper halves");
        uint64_t now = high << 32 | low;
        CHECK(now >= last, "time stamps go backwards: %lu after %lu", now, last);
        last = now;
        if (check_failures)
            return;
    }
    unsigned a, b, c, d;
    __cpuid(0x80000001, a, b, c, d);
    if (d & 1 << 27) {
        uint64_t low = ~0ull, high = ~0ull, aux = ~0ull;
        __asm__ volatile("rdtscp" : "+a"(low), "+d"(high), "+c"(aux));
        CHECK((low | high | aux) >> 32 == 0, "rdtscp clears the upper halves");
        CHECK((high << 32 | low) >= last, "rdtscp is behind rdtsc");
        CHECK((aux & 0xfff) < (unsigned)sysconf(_SC_NPROCESSORS_CONF), "the CPU number in TSC_AUX: %#lx", aux);
    } else {
        say("# no RDTSCP");
    }
    __cpuid_count(7, 0, a, b, c, d);
    if (c & 1 << 22) {
        uint64_t id = ~0ull;
        __asm__ volatile(".byte 0xf3, 0x0f, 0xc7, 0xf9" : "+c"(id)); /* rdpid rcx */
        CHECK((id & 0xfff) < (unsigned)sysconf(_SC_NPROCESSORS_CONF), "rdpid %#lx", id);
    }
}

static void random_numbers(void)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (c & 1 << 30) {
        uint64_t previous = 0;
        int equal = 0, failed = 0;
        for (int i = 0; i < 200; i++) {
            uint64_t value;
            unsigned char ok;
            uint64_t flags;
            __asm__ volatile("rdrand %0\n pushfq\n setc %1\n popq %2" : "=r"(value), "=q"(ok), "=r"(flags)::"cc");
            CHECK((flags & 0x8d4) == 0, "rdrand clears the other flags: %#lx", flags);
            if (!ok) {
                failed++;
                CHECK_EQ(value, 0, "a failed rdrand gives 0");
            } else if (value == previous) {
                equal++;
            }
            previous = value;
        }
        CHECK(equal == 0 && failed < 150, "rdrand: %d equal, %d failed", equal, failed);
        uint64_t wide = ~0ull;
        __asm__ volatile("1: rdrand %k0\n jnc 1b" : "+r"(wide)::"cc");
        CHECK_EQ(wide >> 32, 0, "a 32-bit rdrand clears the upper half");
        wide = ~0ull;
        __asm__ volatile("1: rdrand %w0\n jnc 1b" : "+r"(wide)::"cc");
        CHECK_EQ(wide >> 16, 0xffffffffffff, "a 16-bit rdrand keeps the rest");
    } else {
        say("# no RDRAND");
    }
    __cpuid_count(7, 0, a, b, c, d);
    if (b & 1 << 18) {
        uint64_t value;
        unsigned char ok = 0;
        for (int i = 0; i < 10000 && !ok; i++)
            __asm__ volatile("rdseed %0\n setc %1" : "=r"(value), "=q"(ok)::"cc");
        CHECK(ok, "rdseed never succeeds");
    }
}

static sigjmp_buf back;
static void on_fault(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* There are control registers 0 and, perhaps, 1. */
static void other_control_registers(void)
{
    if (!(getauxval(AT_HWCAP) && sigsetjmp(back, 1) == 0))
        return;
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (!(c & 1 << 27))
        return;
    signal(SIGSEGV, on_fault);
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(5));
    CHECK(false, "no fault");
}

static volatile int faults;
static void skip_cpuid(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    faults++;
    regs_of(context)[REG_RIP] += 2;
}

/* CPUID faults if the processor says that it will, and is allowed if it says that it cannot. */
static void faulting(void)
{
    enum { GET = 0x1011, SET = 0x1012 };
    unsigned a, b, c, d;
    on_signal(SIGSEGV, skip_cpuid, 0);
    CHECK_EQ(syscall(SYS_arch_prctl, GET, 0), 1, "it is allowed at first");
    bool can = syscall(SYS_arch_prctl, SET, 0) == 0;
    CHECK(can || errno == ENODEV, "a reason");
    CHECK_EQ(syscall(SYS_arch_prctl, GET, 0), !can, "whether it is allowed");
    for (int i = 0; i < 3; i++)
        __cpuid(0, a, b, c, d);
    CHECK_EQ(faults, can ? 3 : 0, "faults");
    if (can)
        CHECK_EQ(syscall(SYS_arch_prctl, SET, 1), 0, "it is allowed again");
    signal(SIGSEGV, SIG_DFL);
}

int main(void)
{
    RUN(leaves);
    RUN(stable);
    RUN(extended_state);
    RUN(time_stamps);
    RUN(random_numbers);
    RUN(other_control_registers);
    RUN(faulting);
    return done();
}

/* Promise: F29 */
