//@ variants: pie static
/* Code around which no room is left: the virtual processor has nowhere to put a translation that reaches it,
 * and executes it one instruction at a time. Nothing of that may show: not in what PUSHF stores, not in r11
 * behind a system call, not in the flags of a signal frame, not in the instruction behind MOV SS. */
#include "check.h"
#include <asm/prctl.h>
#include <linux/sched.h>

#define TRAP_FLAG 0x100

/* Position independent: copied to where it is executed. */
__asm__(".text\n.balign 16\n.globl far_begin, far_end\n"
        "far_begin:\n"
        ".globl far_pushes\n"
        "far_pushes: pushfq\n popq %rax\n"
        " .byte 0x48, 0x9c\n popq %rdx\n orq %rdx, %rax\n"
        " .byte 0x2e, 0x40, 0x9c\n popq %rdx\n orq %rdx, %rax\n"
        " pushfw\n popw %dx\n movzwl %dx, %edx\n orq %rdx, %rax\n"
        " pushfq\n popfq\n pushfq\n popfq\n nop\n nop\n ret\n"
        ".globl far_system_call\n"
        "far_system_call: movq %rdi, %rax\n movq %rsi, %rdi\n movq %rdx, %rsi\n movq %rcx, %rdx\n movq %r8, %r10\n"
        " movq %r9, %r8\n movq 8(%rsp), %r9\n syscall\n.globl far_after_call\nfar_after_call: movq 16(%rsp), %rdx\n"
        " testq %rdx, %rdx\n jz 1f\n movq %rcx, (%rdx)\n movq %r11, 8(%rdx)\n1: ret\n"
        ".globl far_clone\n"
        "far_clone: movl $56, %eax\n xorl %edx, %edx\n xorl %r10d, %r10d\n xorl %r8d, %r8d\n syscall\n"
        " testq %rax, %rax\n jnz 1f\n popq %rax\n callq *%rax\n movl $60, %eax\n xorl %edi, %edi\n syscall\n1: ret\n"
        ".globl far_restorer\n"
        "far_restorer: movl $15, %eax\n syscall\n"
        ".globl far_bad_popf, far_bad_iret, far_ud2, far_int3, far_icebp, far_load, far_divide\n"
        "far_bad_popf: movq %rsp, %rdx\n xorl %esp, %esp\n popfq\n far_bad_popf_end: movq %rdx, %rsp\n ret\n"
        "far_bad_iret: movq %rsp, %rdx\n pushq $0x2b\n pushq %rdx\n pushfq\n pushq $0x1f\n pushq $0\n iretq\n"
        " far_bad_iret_end: movq %rdx, %rsp\n ret\n"
        "far_ud2: ud2\n far_ud2_end: ret\n"
        "far_int3: int3\n far_int3_end: ret\n"
        "far_icebp: .byte 0xf1\n far_icebp_end: ret\n"
        "far_load: movl (%rdi), %eax\n far_load_end: ret\n"
        "far_divide: movl $1, %eax\n cltd\n xorl %ecx, %ecx\n divl %ecx\n far_divide_end: ret\n"
        ".globl far_iret\n"
        "far_iret: movq %rsp, %rdx\n movl %ss, %ecx\n pushq %rcx\n pushq %rdx\n pushfq\n movl %cs, %ecx\n pushq %rcx\n"
        " leaq 1f(%rip), %rcx\n pushq %rcx\n iretq\n1: pushfq\n popq %rax\n ret\n"
        ".globl far_stack_segment\n"
        "far_stack_segment: movl %ss, %ecx\n movl %ecx, %ss\n pushfq\n popq %rax\n pushq %rcx\n .byte 0x66, 0x8e, 0xd1\n"
        " pushfq\n popq %rdx\n orq %rdx, %rax\n popq %rcx\n pushfq\n popfq\n nop\n ret\n"
        ".globl far_stack_segment_from_memory\n"
        "far_stack_segment_from_memory: movl %ss, %ecx\n pushq %rcx\n movw (%rsp), %ss\n pushfq\n popq %rax\n addq $8, %rsp\n ret\n"
        ".globl far_identify\n"
        "far_identify: pushq %rbx\n movq %rdx, %r8\n movl %ss, %r9d\n movl %edi, %eax\n movl %esi, %ecx\n movl %r9d, %ss\n"
        " cpuid\n movl %eax, (%r8)\n movl %ebx, 4(%r8)\n movl %ecx, 8(%r8)\n movl %edx, 12(%r8)\n popq %rbx\n ret\n"
        ".globl far_string\n"
        "far_string: movq %rdx, %rcx\n stc\n rep movsb\n pushfq\n popq %rax\n ret\n"
        ".globl far_transaction\n"
        "far_transaction: movl $-1, %eax\n .byte 0xc7, 0xf8, 3, 0, 0, 0\n .byte 0x0f, 0x01, 0xd5\n"
        " pushfq\n popq %rdx\n pushfq\n popfq\n ret\n"
        ".globl far_count\n"
        "far_count: xorl %eax, %eax\n1: incl %eax\n pushfq\n orq (%rsp), %rdx\n popfq\n decl %edi\n jnz 1b\n"
        " movq %rdx, (%rsi)\n ret\n"
        "far_end:\n");
extern char far_begin[], far_end[], far_pushes[], far_system_call[], far_after_call[], far_clone[], far_restorer[],
    far_bad_popf[], far_bad_popf_end[], far_bad_iret[], far_bad_iret_end[], far_ud2[], far_ud2_end[], far_int3[],
    far_int3_end[], far_icebp[], far_icebp_end[], far_load[], far_load_end[], far_divide[], far_divide_end[],
    far_iret[], far_stack_segment[], far_stack_segment_from_memory[], far_identify[], far_string[],
    far_transaction[], far_count[];

static char *page;

static void *moved(const char *label)
{
    return page + (label - far_begin);
}

/* 8 GiB in the middle of which there is one page of code. */
static void prepare(void)
{
    const size_t all = 8ul << 30, gib = 1ul << 30;
    char *around = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(around != MAP_FAILED);
    page = (char *)(((uintptr_t)around + all / 2) / gib * gib + gib / 2);
    MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
    memcpy(page, far_begin, far_end - far_begin);
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
}

static struct { int count, number, code; uintptr_t addr, rip, flags; } seen;
static char *resume;

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    seen.count++;
    seen.number = number;
    seen.code = info->si_code;
    seen.addr = (uintptr_t)info->si_addr;
    seen.rip = regs[REG_RIP];
    seen.flags = regs[REG_EFL];
    if (resume)
        regs[REG_RIP] = (uintptr_t)resume;
}

static void flags_stored(void)
{
    for (int i = 0; i < 5; i++) {
        uint64_t all = ((uint64_t (*)(void))moved(far_pushes))();
        CHECK_EQ(all & TRAP_FLAG, 0, "the trap flag in what PUSHF stores");
    }
    uint64_t flags = ((uint64_t (*)(void))moved(far_iret))();
    CHECK_EQ(flags & TRAP_FLAG, 0, "the trap flag behind IRET");
}

static long far_call(uint64_t *left, long number, long a, long b, long c, long d, long e)
{
    typedef long caller(long, long, long, long, long, long, long, uint64_t *);
    return ((caller *)moved(far_system_call))(number, a, b, c, d, e, 0, left);
}

static void system_calls(void)
{
    uint64_t left[2];
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(far_call(left, SYS_getppid, 0, 0, 0, 0, 0), getppid(), "getppid");
        CHECK_EQ(left[0], (uintptr_t)moved(far_after_call), "rcx behind a system call");
        CHECK_EQ(left[1] & TRAP_FLAG, 0, "the trap flag in r11");
    }
    CHECK_EQ(far_call(left, SYS_close, 77, 0, 0, 0, 0), -EBADF, "close(77)");
    CHECK_EQ(left[1] & TRAP_FLAG, 0, "the trap flag in r11");
    unsigned long base = 0;
    CHECK_EQ(far_call(NULL, SYS_arch_prctl, ARCH_SET_GS, 0x12345000, 0, 0, 0), 0, "ARCH_SET_GS");
    CHECK_EQ(syscall(SYS_arch_prctl, ARCH_GET_GS, &base), 0, "ARCH_GET_GS");
    CHECK_EQ(base, 0x12345000, "the gs base");
    CHECK_EQ(far_call(NULL, SYS_arch_prctl, ARCH_GET_GS, (long)&base, 0, 0, 0), 0, "ARCH_GET_GS");
    CHECK_EQ(base, 0x12345000, "the gs base");
    syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
}

/* The virtual processor takes part in the calls by which code changes, wherever they are made. */
static void code_changes(void)
{
    unsigned char *code = map_pages(4096, PROT_READ | PROT_WRITE);
    for (int value = 1; value <= 3; value++) {
        unsigned char bytes[] = {0xb8, value, 0, 0, 0, 0xc3};
        memcpy(code, bytes, sizeof bytes);
        CHECK_EQ(far_call(NULL, SYS_mprotect, (long)code, 4096, PROT_READ | PROT_EXEC, 0, 0), 0, "mprotect");
        for (int i = 0; i < 3; i++)
            CHECK_EQ(((int (*)(void))code)(), value, "code made executable");
        CHECK_EQ(far_call(NULL, SYS_mprotect, (long)code, 4096, PROT_READ | PROT_WRITE, 0, 0), 0, "mprotect");
    }
    munmap(code, 4096);
}

static volatile int child_ran;
static void *child_stack;
static void child(void)
{
    child_ran = getpid() == syscall(SYS_gettid) ? 1 : 2;
}

static void processes(void)
{
    long pid = far_call(NULL, SYS_fork, 0, 0, 0, 0, 0);
    if (pid == 0) {
        uint64_t flags = ((uint64_t (*)(void))moved(far_pushes))();
        _exit(flags & TRAP_FLAG ? 1 : 7);
    }
    CHECK(pid > 0, "fork: %ld", pid);
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
    CHECK_EQ(status, 7 << 8, "the child's end");
    /* A process that shares the memory, and begins behind the call. */
    char *stack = child_stack = map_pages(65536, PROT_READ | PROT_WRITE);
    void **top = (void **)(stack + 65536) - 2;
    *top = (void *)child;
    pid = ((long (*)(long, void *))moved(far_clone))(CLONE_VM | SIGCHLD, top);
    CHECK(pid > 0, "clone: %ld", pid);
    CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
    CHECK_EQ(status, 0, "the end of a child that shares the memory");
    CHECK_EQ(child_ran, 1, "what it did");
}

static void faults(void)
{
    static const struct { const char *name, *at, *end; int number; int offset; } all[] = {
        {"popf", far_bad_popf, far_bad_popf_end, SIGSEGV, 5}, {"iret", far_bad_iret, far_bad_iret_end, SIGSEGV, 11},
        {"ud2", far_ud2, far_ud2_end, SIGILL, 0}, {"int3", far_int3, far_int3_end, SIGTRAP, 1},
        {"icebp", far_icebp, far_icebp_end, SIGTRAP, 1}, {"load", far_load, far_load_end, SIGSEGV, 0},
        {"div", far_divide, far_divide_end, SIGFPE, 8}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        memset(&seen, 0, sizeof seen);
        resume = moved(all[i].end);
        ((void (*)(uintptr_t))moved(all[i].at))(0x1230);
        CHECK_EQ(seen.count, 1, "%s: signals", all[i].name);
        CHECK_EQ(seen.number, all[i].number, "%s: signal", all[i].name);
        CHECK_EQ(seen.flags & TRAP_FLAG, 0, "%s: the trap flag in the frame", all[i].name);
        uintptr_t offset = seen.rip - (uintptr_t)moved(all[i].at);
        /* Some hypervisors deliver INT1 as a fault. */
        if (all[i].at == far_icebp && offset == 0)
            say("icebp: a fault");
        else
            CHECK_EQ(offset, all[i].offset, "%s: rip", all[i].name);
        say("%s: code %d", all[i].name, seen.code);
    }
    resume = NULL;
}

/* The same instruction in ordinary code, where it is translated. */
static void faults_elsewhere(void)
{
    memset(&seen, 0, sizeof seen);
    resume = far_bad_iret_end;
    ((void (*)(void))far_bad_iret)();
    resume = NULL;
    CHECK_EQ(seen.count, 1, "iret: signals");
    CHECK_EQ(seen.flags & TRAP_FLAG, 0, "iret: the trap flag in the frame");
    CHECK_EQ(seen.rip - (uintptr_t)far_bad_iret, 11, "iret: rip");
}

static void stack_segment(void)
{
    for (int i = 0; i < 3; i++) {
        uint64_t flags = ((uint64_t (*)(void))moved(far_stack_segment))();
        CHECK_EQ(flags & TRAP_FLAG, 0, "the trap flag behind MOV SS");
        flags = ((uint64_t (*)(void))moved(far_stack_segment_from_memory))();
        CHECK_EQ(flags & TRAP_FLAG, 0, "the trap flag behind MOV SS from memory");
    }
    static const unsigned leaves[][2] = {{0, 0}, {1, 0}, {7, 0}, {13, 0}, {0x80000001, 0}, {0x80000004, 0}};
    for (int i = 0; i < 6; i++) {
        uint32_t far[4], near[4];
        typedef void identify(unsigned, unsigned, uint32_t *);
        ((identify *)moved(far_identify))(leaves[i][0], leaves[i][1], far);
        ((identify *)far_identify)(leaves[i][0], leaves[i][1], near);
        for (int reg = 0; reg < 4; reg++) {
            /* Leaf 1 tells the initial APIC id of the processor at hand. */
            uint32_t mask = leaves[i][0] == 1 && reg == 1 ? 0x00ffffff : ~0u;
            CHECK_EQ(far[reg] & mask, near[reg] & mask, "leaf %x, register %d", leaves[i][0], reg);
        }
    }
}

static void strings_and_transactions(void)
{
    char from[64], to[64] = "";
    memset(from, 'x', 63);
    from[63] = 0;
    uint64_t flags = ((uint64_t (*)(char *, char *, long))moved(far_string))(to, from, 64);
    CHECK(!strcmp(from, to), "the copy");
    CHECK_EQ(flags & (TRAP_FLAG | 1), 1, "flags behind a string instruction");
    __builtin_cpu_init();
    if (__builtin_cpu_supports("rtm"))
        for (int i = 0; i < 3; i++) {
            uint64_t status, stored;
            __asm__ volatile("call *%2" : "=a"(status), "=d"(stored) : "r"(moved(far_transaction)) : "memory", "cc");
            CHECK_EQ(stored & TRAP_FLAG, 0, "the trap flag behind a transaction");
        }
}

static volatile int ticks;
static volatile uintptr_t tick_flags;
static void on_tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    ticks++;
    tick_flags |= regs_of(context)[REG_EFL];
}

static void signals(void)
{
    on_signal(SIGALRM, on_tick, 0);
    struct itimerval timer = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int round = 0; ticks < 5 && round < 100000; round++) {
        uint64_t flags = 0;
        CHECK_EQ(((int (*)(int, uint64_t *, long))moved(far_count))(200, &flags, 0), 200, "the count");
        CHECK_EQ(flags & TRAP_FLAG, 0, "the trap flag in what PUSHF stores");
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    CHECK_EQ(tick_flags & TRAP_FLAG, 0, "the trap flag in a frame");
    CHECK(ticks >= 5, "%d signals", ticks);
}

/* A handler that returns by code out of reach. */
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static void returning(void)
{
    struct kernel_action action = {.handler = handler, .flags = SA_SIGINFO | 0x04000000, .restorer = moved(far_restorer)};
    MUST(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8) == 0);
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < 20; i++)
        raise(SIGUSR1);
    CHECK_EQ(seen.count, 20, "signals");
    uint64_t flags;
    __asm__ volatile("pushfq\n popq %0" : "=r"(flags));
    CHECK_EQ(flags & TRAP_FLAG, 0, "the trap flag behind a handler");
}

int main(void)
{
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    for (int i = 0; i < 4; i++)
        on_signal((int[]){SIGSEGV, SIGILL, SIGTRAP, SIGFPE}[i], handler, SA_ONSTACK);
    prepare();
    RUN(flags_stored);
    RUN(system_calls);
    RUN(code_changes);
    RUN(processes);
    RUN(faults);
    RUN(faults_elsewhere);
    RUN(stack_segment);
    RUN(strings_and_transactions);
    RUN(signals);
    RUN(returning);
    return done();
}

/* Promise: F16 */
