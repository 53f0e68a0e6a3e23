//@ variants: pie static
/* A program that sets its own trap flag: a SIGTRAP after every instruction from the next one on, with
 * the state and the address behind it. */
#include "check.h"
#include <sys/resource.h>

static uintptr_t base;
static uintptr_t seen[200];
static bool kept[200];
static int traps, limit;

static void on_trap(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    CHECK_EQ(number, SIGTRAP, "signal");
    CHECK_EQ(info->si_code, TRAP_TRACE, "si_code");
    CHECK_EQ((uintptr_t)info->si_addr, (uintptr_t)regs[REG_RIP], "si_addr");
    if (traps < 200) {
        seen[traps] = regs[REG_RIP] - base;
        kept[traps] = regs[REG_EFL] >> 8 & 1;
    }
    if (++traps >= limit)
        regs[REG_EFL] &= ~0x100;
}

static void on_user(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    regs_of(context)[REG_EFL] |= 0x100;
}

static void begin(void *at)
{
    traps = 0;
    limit = 150;
    base = (uintptr_t)at;
}

/* Where every trap was, so that the native run and others can be compared. */
static void report(const char *what)
{
    say("%s: %d traps", what, traps);
    for (int i = 0; i < traps && i < 200; i++)
        say("  +%lx%s", (unsigned long)seen[i], kept[i] ? "" : ", the flag is gone");
}

static void straight_line(void)
{
    uint64_t result = 0;
    begin(&&start);
start:
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n movq %%rcx, %1\n"
                     "pushfq\n orq $0x100, (%%rsp)\n popfq\n1:\n"
                     "addq $1, %0\n addq $2, %0\n addq $3, %0\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n addq $4, %0"
                     : "+r"(result), "+m"(base)::"cc", "memory", "rcx");
    CHECK_EQ(result, 10, "the computation");
    CHECK_EQ(traps, 6, "traps");
    report("straight line");
}

/* Branches of every kind, a loop, a call, a string instruction: each is one instruction or, where it
 * repeats, one an iteration. */
static void branches(void)
{
    static char from[8] = "abcdefg", to[8];
    begin(0);
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n movq %%rcx, %0\n leaq 4f(%%rip), %%rdx\n"
                     "pushfq\n orq $0x100, (%%rsp)\n popfq\n1: jmp 2f\n nop\n"
                     "2: movl $3, %%ecx\n3: subl $1, %%ecx\n jnz 3b\n"
                     "call 5f\n jmp *%%rdx\n nop\n nop\n"
                     "5: cmpl %%eax, %%eax\n je 6f\n nop\n6: ret\n"
                     "4: leaq %1, %%rsi\n leaq %2, %%rdi\n movl $8, %%ecx\n rep movsb\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n"
                     : "+m"(base), "+m"(from), "+m"(to)::"cc", "memory", "rax", "rcx", "rdx", "rsi", "rdi");
    CHECK(!memcmp(from, to, 8), "the copy");
    report("branches");
}

/* No trap comes behind a system call, but behind what follows it. Calls that the virtual processor
 * takes part in are made right too. */
static void system_calls(void)
{
    long pid = 0, page = 0;
    begin(0);
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n movq %%rcx, %0\n"
                     "pushfq\n orq $0x100, (%%rsp)\n popfq\n1:\n"
                     "movl $39, %%eax\n syscall\n nop\n nop\n movq %%rax, %1\n"
                     "movl $9, %%eax\n xorl %%edi, %%edi\n movl $4096, %%esi\n movl $7, %%edx\n"
                     "movl $0x22, %%r10d\n movq $-1, %%r8\n xorl %%r9d, %%r9d\n syscall\n nop\n movq %%rax, %2\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n"
                     : "+m"(base), "+m"(pid), "+m"(page)::"cc", "memory", "rax", "rcx", "rdx", "rsi", "rdi",
                       "r8", "r9", "r10", "r11");
    CHECK_EQ(pid, getpid(), "getpid");
    report("system calls");
    unsigned char *code = (unsigned char *)page;
    memcpy(code, "\xb8\x2a\0\0\0\xc3", 6);
    CHECK_EQ(((int (*)(void))code)(), 42, "code in the page that was mapped");
    munmap(code, 4096);
}

/* A child has its maker's flag, and neither loses it. */
static void children(void)
{
    static const long numbers[] = {57, 58, 56};
    for (int i = 0; i < 3; i++) {
        long pid = numbers[i];
        begin(0);
        __asm__ volatile("leaq 1f(%%rip), %%rcx\n movq %%rcx, %1\n xorl %%esi, %%esi\n xorl %%edx, %%edx\n xorl %%r10d, %%r10d\n"
                         "pushfq\n orq $0x100, (%%rsp)\n popfq\n1: nop\n"
                         "syscall\n nop\n nop\n testq %0, %0\n"
                         "pushfq\n andq $~0x100, (%%rsp)\n popfq\n"
                         : "+a"(pid), "+m"(base)
                         : "D"(SIGCHLD)
                         : "cc", "memory", "rcx", "rdx", "rsi", "r10", "r11");
        if (pid == 0) {
            report("child");
            _exit(7);
        }
        int status = 0;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 7 << 8, "the child's end");
        report("its maker");
    }
}

static void identification(void)
{
    uint32_t a = 0, b, c = 0, d;
    begin(0);
    __asm__ volatile("leaq 1f(%%rip), %%rdx\n movq %%rdx, %4\n"
                     "pushfq\n orq $0x100, (%%rsp)\n popfq\n1: cpuid\n nop\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n"
                     : "+a"(a), "=b"(b), "+c"(c), "=d"(d), "+m"(base)::"cc", "memory");
    uint32_t a2 = 0, b2, c2 = 0, d2;
    __asm__ volatile("cpuid" : "+a"(a2), "=b"(b2), "+c"(c2), "=d"(d2));
    CHECK(a == a2 && b == b2 && c == c2 && d == d2, "the answer to CPUID");
    report("identification");
}

/* A signal frame that gains the flag: traps begin where the frame leads. */
static void frame(void)
{
    pid_t pid = getpid();
    begin(0);
    limit = 5;
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n movq %%rcx, %0\n"
                     "movl $62, %%eax\n movl %1, %%edi\n movl $10, %%esi\n syscall\n"
                     "1: nop\n nop\n nop\n nop\n nop\n nop\n nop\n nop\n"
                     : "+m"(base) : "r"(pid) : "cc", "memory", "rax", "rcx", "rdi", "rsi", "r11");
    CHECK_EQ(traps, 5, "traps after the frame");
    report("frame");
}

/* Nobody handles the trap. */
static void unhandled(void)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTRAP, SIG_DFL);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq\n nop\n" ::: "cc", "memory");
        _exit(3);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP, "status %x", status);
}

int main(void)
{
    on_signal(SIGTRAP, on_trap, 0);
    on_signal(SIGUSR1, on_user, 0);
    RUN(straight_line);
    RUN(branches);
    RUN(system_calls);
    RUN(children);
    RUN(identification);
    RUN(frame);
    RUN(unhandled);
    return done();
}

/* Promise: F12 */
