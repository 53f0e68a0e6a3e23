//@ variants: pie static
/* The other ways into the kernel: int 0x80, the vsyscall page, the vdso by its own symbols; and what is
 * refused: sysenter, 32-bit far jumps. */
#include "check.h"
#include <elf.h>
#include <sys/auxv.h>

static long by_int80(long number, long b, long c, long d)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(b), "c"(c), "d"(d) : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static sigjmp_buf back;
static volatile int signal_seen;
static volatile uintptr_t rip_seen, address_seen;
static void handler(int number, siginfo_t *info, void *context)
{
    signal_seen = number;
    address_seen = (uintptr_t)info->si_addr;
    rip_seen = regs_of(context)[REG_RIP];
    siglongjmp(back, 1);
}

static void compatibility_calls(void)
{
    /* The kernel may be built without it: then it is a fault at the instruction. */
    if (sigsetjmp(back, 1)) {
        say("int 0x80: signal %d", signal_seen);
        return;
    }
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(by_int80(20, 0, 0, 0), getpid(), "getpid");
        CHECK_EQ(by_int80(6, 77, 0, 0), -EBADF, "close(77)");
        CHECK_EQ(by_int80(9999, 0, 0, 0), -ENOSYS, "no such call");
    }
    uint64_t r12 = 0x1212121212121212, kept12;
    __asm__ volatile("movq %1, %%r12\n movl $20, %%eax\n int $0x80\n movq %%r12, %0"
                     : "=&r"(kept12) : "r"(r12) : "rax", "r8", "r9", "r10", "r11", "r12", "memory");
    CHECK_EQ(kept12, r12, "r12 across int 0x80");
    static char text[] = "written by int 0x80\n";
    if ((uintptr_t)text < 1ul << 32)
        CHECK_EQ(by_int80(4, 1, (long)text, sizeof text - 1), sizeof text - 1, "write");
    say("int 0x80 works");
    for (int i = 0; i < 5; i++) {
        pid_t pid = by_int80(2, 0, 0, 0);
        if (pid == 0) {
            unsigned long base = 1;
            bool same = syscall(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &base) == 0 && base == 0;
            _exit(same ? 7 : 8);
        }
        CHECK(pid > 0, "fork by int 0x80");
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 7 << 8, "the child's end");
    }
}

static void vsyscall_page(void)
{
    static const uintptr_t page = 0xffffffffff600000;
    if (sigsetjmp(back, 1)) {
        say("vsyscall: signal %d", signal_seen);
        return;
    }
    time_t (*vtime)(time_t *) = (void *)(page + 0x400);
    for (int i = 0; i < 50; i++) {
        time_t before = time(NULL), stored = 0, got = vtime(&stored), after = time(NULL);
        CHECK(got >= before - 1 && got <= after + 1 && stored == got, "vsyscall time %ld, %ld", (long)got, (long)before);
    }
    int (*vgettimeofday)(struct timeval *, void *) = (void *)page;
    struct timeval now;
    CHECK_EQ(vgettimeofday(&now, NULL), 0, "vsyscall gettimeofday");
    long (*vgetcpu)(unsigned *, unsigned *, void *) = (void *)(page + 0x800);
    unsigned cpu = 12345;
    CHECK_EQ(vgetcpu(&cpu, NULL, NULL), 0, "vsyscall getcpu");
    CHECK(cpu < 4096, "cpu %u", cpu);
    say("vsyscall works");
}

static void vsyscall_middle(void)
{
    if (sigsetjmp(back, 1) == 0) {
        ((void (*)(void))0xffffffffff600123)();
        CHECK(0, "a call into the middle of the page");
    }
    CHECK_EQ(signal_seen, SIGSEGV, "a call into the middle of the page");
    CHECK_EQ(rip_seen, 0xffffffffff600123, "rip");
    /* How the kernel reports it depends on its configuration. */
    say("si_addr %#lx", address_seen);
}

/* Finds a symbol of the vdso the way a C library does. */
static void *vdso_symbol(const char *wanted)
{
    const char *base = (char *)getauxval(AT_SYSINFO_EHDR);
    if (!base)
        return NULL;
    const Elf64_Ehdr *header = (void *)base;
    const Elf64_Phdr *segments = (void *)(base + header->e_phoff);
    const Elf64_Dyn *dynamic = NULL;
    intptr_t slide = 0;
    for (int i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD)
            slide = (intptr_t)base + segments[i].p_offset - segments[i].p_vaddr;
        if (segments[i].p_type == PT_DYNAMIC)
            dynamic = (void *)(base + segments[i].p_offset);
    }
    const Elf64_Sym *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    const uint32_t *gnu = NULL;
    for (; dynamic && dynamic->d_tag; dynamic++) {
        void *at = (void *)(dynamic->d_un.d_ptr + slide);
        if (dynamic->d_tag == DT_SYMTAB) symbols = at;
        if (dynamic->d_tag == DT_STRTAB) strings = at;
        if (dynamic->d_tag == DT_HASH) hash = at;
        if (dynamic->d_tag == DT_GNU_HASH) gnu = at;
    }
    uint32_t count = hash ? hash[1] : 0;
    if (!hash && gnu) {
        const uint32_t *buckets = gnu + 4 + gnu[2] * 2, *chains = buckets + gnu[0];
        for (uint32_t b = 0; b < gnu[0]; b++)
            for (uint32_t s = buckets[b]; s >= gnu[1]; s++) {
                if (s >= count) count = s + 1;
                if (chains[s - gnu[1]] & 1) break;
            }
    }
    for (uint32_t i = 0; i < count; i++)
        if (symbols[i].st_shndx && strcmp(strings + symbols[i].st_name, wanted) == 0)
            return (void *)(symbols[i].st_value + slide);
    return NULL;
}

static void vdso(void)
{
    int (*gettime)(clockid_t, struct timespec *) = vdso_symbol("__vdso_clock_gettime");
    if (!gettime) {
        /* Hiding the vdso is allowed; the library then makes a system call. */
        say("# no vdso");
        struct timespec now;
        CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &now), 0, "clock_gettime");
        return;
    }
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        struct timespec before, between, after;
        MUST(syscall(SYS_clock_gettime, clocks[i], &before) == 0);
        CHECK_EQ(gettime(clocks[i], &between), 0, "clock %d", clocks[i]);
        MUST(syscall(SYS_clock_gettime, clocks[i], &after) == 0);
        double b = before.tv_sec + before.tv_nsec / 1e9, m = between.tv_sec + between.tv_nsec / 1e9, a = after.tv_sec + after.tv_nsec / 1e9;
        CHECK(m >= b - 0.01 && m <= a + 0.01, "clock %d: %f is not between %f and %f", clocks[i], m, b, a);
    }
    CHECK_EQ(gettime(12345, &(struct timespec){0}), -EINVAL, "no such clock");
    long (*getcpu)(unsigned *, unsigned *, void *) = vdso_symbol("__vdso_getcpu");
    unsigned cpu = 99999;
    if (getcpu)
        CHECK(getcpu(&cpu, NULL, NULL) == 0 && cpu < 4096, "getcpu gives %u", cpu);
    double last = 0;
    for (int i = 0; i < 100000; i++) {
        double now = now_seconds();
        if (now < last)
            CHECK(0, "time goes backwards");
        last = now;
    }
}

int main(void)
{
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    on_signal(SIGSEGV, handler, SA_ONSTACK);
    on_signal(SIGILL, handler, SA_ONSTACK);
    RUN(compatibility_calls);
    RUN(vsyscall_page);
    RUN(vsyscall_middle);
    RUN(vdso);
    return done();
}
