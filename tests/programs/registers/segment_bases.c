//@ variants: pie static
//@ cflags: -O1 -pthread
/* The program's own use of gs and fs: bases, every form of access, per thread, across fork, signals. */
#include "check.h"
#include <asm/prctl.h>
#include <sys/auxv.h>

static int arch(int code, unsigned long value)
{
    return syscall(SYS_arch_prctl, code, value);
}

static uint64_t area[64] __attribute__((aligned(64)));

static uint64_t gs_load(uint64_t offset)
{
    uint64_t value;
    __asm__ volatile("movq %%gs:(%1), %0" : "=r"(value) : "r"(offset));
    return value;
}

static void starts_at_zero(void)
{
    unsigned long base = 1;
    CHECK_EQ(arch(ARCH_GET_GS, (unsigned long)&base), 0, "ARCH_GET_GS");
    CHECK_EQ(base, 0, "the gs base of a new program");
    unsigned short selector;
    __asm__ volatile("movw %%gs, %0" : "=r"(selector));
    CHECK_EQ(selector, 0, "the gs selector");
    __asm__ volatile("movw %%fs, %0" : "=r"(selector));
    CHECK_EQ(selector, 0, "the fs selector");
}

static void forms(void)
{
    for (int i = 0; i < 64; i++)
        area[i] = 0x1000 + i;
    CHECK_EQ(arch(ARCH_SET_GS, (unsigned long)area), 0, "ARCH_SET_GS");
    unsigned long base = 0;
    arch(ARCH_GET_GS, (unsigned long)&base);
    CHECK_EQ(base, (uintptr_t)area, "ARCH_GET_GS after ARCH_SET_GS");

    uint64_t value;
    __asm__ volatile("movq %%gs:8, %0" : "=r"(value));
    CHECK_EQ(value, 0x1001, "absolute displacement");
    CHECK_EQ(gs_load(16), 0x1002, "base register");
    __asm__ volatile("movq %%gs:8(%1,%2,8), %0" : "=r"(value) : "r"(16ul), "r"(3ul));
    CHECK_EQ(value, 0x1006, "base, index, displacement");
    __asm__ volatile("movq %%gs:-8(%1), %0" : "=r"(value) : "r"(16ul));
    CHECK_EQ(value, 0x1001, "negative displacement");
    __asm__ volatile("movl %%gs:(%k1), %k0" : "=r"(value) : "r"(0xffffffff00000018ul));
    CHECK_EQ(value, 0x1003, "32-bit address");
    __asm__ volatile("movq $0x77, %%gs:32\n addq $1, %%gs:32\n lock incq %%gs:32" ::: "memory");
    CHECK_EQ(area[4], 0x79, "read-modify-write");
    __asm__ volatile("pushq %%gs:40\n popq %%gs:48" ::: "memory");
    CHECK_EQ(area[6], 0x1005, "push and pop");
    value = 0x1007;
    uint64_t desired = 0x99;
    __asm__ volatile("lock cmpxchgq %1, %%gs:56" : "+a"(value) : "r"(desired) : "memory", "cc");
    CHECK_EQ(area[7], 0x99, "compare and exchange");
    __asm__ volatile("xchgq %0, %%gs:64" : "+r"(desired)::"memory");
    CHECK_EQ(desired, 0x1008, "exchange");
    const uint64_t *source = (uint64_t *)72;
    __asm__ volatile("lodsq %%gs:(%%rsi), %%rax" : "=a"(value), "+S"(source));
    CHECK_EQ(value, 0x1009, "lodsq");
    CHECK_EQ((uintptr_t)source, 80, "lodsq advances rsi");
    uint64_t copy[3] = {0};
    uint64_t *to = copy;
    uint64_t count = 3;
    __asm__ volatile("rep movsq %%gs:(%%rsi), %%es:(%%rdi)" : "+S"(source), "+D"(to), "+c"(count)::"memory");
    CHECK(copy[0] == 0x100a && copy[2] == 0x100c, "rep movsq: %#lx %#lx", copy[0], copy[2]);
    __asm__ volatile("movdqu %%gs:104, %%xmm1\n movq %%xmm1, %0" : "=r"(value)::"xmm1");
    CHECK_EQ(value, 0x100d, "vector load");
    __asm__ volatile("leaq %%gs:8(%1), %0" : "=r"(value) : "r"(1ul));
    CHECK_EQ(value, 9, "lea ignores the segment");
}

__asm__(".text\n.globl gs_callee, gs_try_call, gs_try_jump\n"
        "gs_callee: movl $0xca11, %eax\n ret\n"
        "gs_try_call: movl $256, %ecx\n call *%gs:256\n movl %eax, %edx\n call *%gs:(%rcx)\n addl %edx, %eax\n ret\n"
        "gs_try_jump: subq $8, %rsp\n call 1f\n addq $8, %rsp\n ret\n1: jmp *%gs:256\n");
int gs_try_call(void);
int gs_try_jump(void);
extern char gs_callee[];

static void branches(void)
{
    area[32] = (uintptr_t)gs_callee;
    CHECK_EQ(gs_try_call(), 2 * 0xca11, "call through gs");
    CHECK_EQ(gs_try_jump(), 0xca11, "jump through gs");
}

static void rip_relative(void)
{
    /* gs base = distance, so that gs:sym(%rip) is sym + distance. */
    static uint64_t pair[2] = {0xaaaa, 0xbbbb};
    arch(ARCH_SET_GS, 8);
    uint64_t value;
    __asm__ volatile("movq %%gs:%1, %0" : "=r"(value) : "m"(pair[0]));
    CHECK_EQ(value, 0xbbbb, "rip-relative with gs");
    arch(ARCH_SET_GS, (unsigned long)area);
}

static volatile uint64_t in_handler;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    in_handler = gs_load(8);
}

static void in_signal(void)
{
    on_signal(SIGUSR1, handler, 0);
    raise(SIGUSR1);
    CHECK_EQ(in_handler, 0x1001, "gs in a handler");
    CHECK_EQ(gs_load(8), 0x1001, "gs after a handler");
}

static void child(void)
{
    CHECK_EQ(gs_load(8), 0x1001, "gs in a child");
    area[1] = 5;
    CHECK_EQ(gs_load(8), 5, "gs in a child");
}

static void *thread(void *argument)
{
    uint64_t *own = argument;
    unsigned long base = 1;
    arch(ARCH_GET_GS, (unsigned long)&base);
    /* A new thread starts with its creator's base. */
    CHECK_EQ(base, (uintptr_t)area, "gs base of a new thread");
    arch(ARCH_SET_GS, (unsigned long)own);
    for (int i = 0; i < 20000; i++) {
        if (gs_load(0) != own[0])
            CHECK(0, "gs of another thread seen");
        if (i % 1000 == 0)
            sched_yield();
    }
    return NULL;
}

static void per_thread(void)
{
    pthread_t ids[4];
    static uint64_t own[4];
    for (int i = 0; i < 4; i++) {
        own[i] = i + 100;
        MUST(pthread_create(&ids[i], NULL, thread, &own[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    CHECK_EQ(gs_load(8), 0x1001, "gs of the first thread");
}

static void instructions(void)
{
    if (!(getauxval(AT_HWCAP2) & 2)) {
        say("# no FSGSBASE");
        return;
    }
    uint64_t value = 0;
    __asm__ volatile("rdgsbase %0" : "=r"(value));
    CHECK_EQ(value, (uintptr_t)area, "rdgsbase");
    __asm__ volatile("wrgsbase %0" ::"r"((uint64_t)(area + 16)));
    CHECK_EQ(gs_load(8), 0x1011, "wrgsbase");
    unsigned long base = 0;
    arch(ARCH_GET_GS, (unsigned long)&base);
    CHECK_EQ(base, (uintptr_t)(area + 16), "ARCH_GET_GS after wrgsbase");
    __asm__ volatile("wrgsbase %k0" ::"r"(0x1234ul));
    __asm__ volatile("rdgsbase %0" : "=r"(value));
    CHECK_EQ(value, 0x1234, "32-bit wrgsbase");
    value = -1;
    __asm__ volatile("rdgsbase %k0" : "+r"(value));
    CHECK_EQ(value, 0x1234, "32-bit rdgsbase clears the upper half");
    arch(ARCH_SET_GS, (unsigned long)area);
    unsigned long fs = 0;
    arch(ARCH_GET_FS, (unsigned long)&fs);
    __asm__ volatile("rdfsbase %0" : "=r"(value));
    CHECK_EQ(value, fs, "rdfsbase");
    uint64_t seen;
    __asm__ volatile("rdfsbase %%r8\n wrfsbase %1\n movq %%fs:8, %0\n wrfsbase %%r8"
                     : "=&r"(seen) : "r"(area) : "r8");
    CHECK_EQ(seen, 0x1001, "wrfsbase");
}

static void fs_by_system_call(void)
{
    uint64_t seen, self;
    __asm__ volatile("movq %%fs:0, %0" : "=r"(self));
    unsigned long fs = 0;
    arch(ARCH_GET_FS, (unsigned long)&fs);
    CHECK_EQ(fs, self, "the thread pointer");
    __asm__ volatile("movl $158, %%eax\n movl $0x1002, %%edi\n movq %2, %%rsi\n syscall\n movq %%fs:8, %%r12\n"
                     "movl $158, %%eax\n movl $0x1002, %%edi\n movq %1, %%rsi\n syscall\n movq %%r12, %0"
                     : "=r"(seen) : "r"(self), "r"(area)
                     : "rax", "rdi", "rsi", "rcx", "r11", "r12", "memory");
    CHECK_EQ(seen, 0x1001, "ARCH_SET_FS");
}

static void bad_base(void)
{
    CHECK_EQ(arch(ARCH_SET_GS, 1ul << 63), -1, "a base that is not canonical");
    CHECK_EQ(errno, EPERM, "its error");
    CHECK_EQ(gs_load(8), 0x1001, "gs is unchanged");
    arch(ARCH_SET_GS, 0);
    unsigned long base = 1;
    arch(ARCH_GET_GS, (unsigned long)&base);
    CHECK_EQ(base, 0, "gs base cleared");
}

static sigjmp_buf back;
static volatile uintptr_t fault_address;
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    fault_address = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

static void faults(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    if (sigsetjmp(back, 1) == 0) {
        (void)gs_load(0x18);
        CHECK(0, "a load from gs:0x18 with a zero base");
    }
    CHECK_EQ(fault_address, 0x18, "si_addr");
    signal(SIGSEGV, SIG_DFL);
}

static volatile int fault_code;
static void on_code(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    fault_code = info->si_code;
    siglongjmp(back, 1);
}

/* A base that is no address faults, and the old one stays; signals come and go afterwards. */
static void no_address(void)
{
    if (!(getauxval(AT_HWCAP2) & 2))
        return;
    on_signal(SIGSEGV, on_code, 0);
    unsigned long base;
    __asm__ volatile("wrgsbase %0" ::"r"((unsigned long)area));
    for (int i = 0; i < 3; i++) {
        fault_code = 0;
        if (sigsetjmp(back, 1) == 0) {
            unsigned long bad = 0x8000000000000000ul >> i * 8;
            if (i == 0)
                __asm__ volatile("wrgsbase %0" ::"r"(bad));
            if (i == 1)
                __asm__ volatile("wrgsbase %%rcx" ::"c"(bad));
            if (i == 2)
                __asm__ volatile("wrfsbase %0" ::"r"(bad));
            CHECK(false, "no fault (%d)", i);
        }
        CHECK_EQ(fault_code, 128, "a general protection fault (%d)", i);
        __asm__ volatile("rdgsbase %0" : "=r"(base));
        CHECK_EQ(base, (uintptr_t)area, "the base before (%d)", i);
    }
    /* 32-bit forms take no more than that. */
    __asm__ volatile("wrgsbase %k0" ::"r"(0x8000000000001000ul));
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    CHECK_EQ(base, 0x1000, "32 bits of a base");
    raise(SIGCONT);
    signal(SIGSEGV, SIG_DFL);
}

/* A gs selector stays until it is set again, whatever happens meanwhile. */
static void selectors(void)
{
    unsigned short selector;
    static const unsigned short values[] = {0x2b, 0x23, 0x2b, 0};
    for (int i = 0; i < 4; i++) {
        __asm__ volatile("movw %0, %%gs" ::"r"(values[i]));
        getppid();
        raise(SIGCONT);
        __asm__ volatile("movw %%gs, %0" : "=r"(selector));
        CHECK_EQ(selector, values[i], "the gs selector");
        uint64_t pushed;
        __asm__ volatile("push %%gs; pop %0" : "=r"(pushed));
        CHECK_EQ(pushed & 0xffff, values[i], "the gs selector, pushed");
    }
}

int main(void)
{
    RUN(starts_at_zero);
    RUN(forms);
    RUN(branches);
    RUN(rip_relative);
    RUN(in_signal);
    CHECK_EQ(in_child(child), 0, "child");
    RUN(per_thread);
    RUN(instructions);
    RUN(fs_by_system_call);
    RUN(bad_base);
    RUN(faults);
    RUN(no_address);
    RUN(selectors);
    return done();
}

/* Promise: F7 */
/* Promise: F18: a case that once led to this */
