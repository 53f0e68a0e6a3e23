//@ variants: pie no-pie static
//@ cflags: -O1
/* The x87 unit's instruction and data pointers are the program's own addresses: as every instruction stores them, in
 * signal frames, and behind a handler. Where the processor keeps none, natively neither, it says so. */
#include "check.h"
#include <cpuid.h>

static unsigned char area[4096] __attribute__((aligned(64)));
static unsigned char other[4096] __attribute__((aligned(64)));
static float zero = 0;
extern char at_load[], at_division[];

/* Executes an x87 instruction at a place that is known. */
__asm__(".text\n.globl load\nload: fninit\nat_load: fld1\n jmp 1f\n ud2\n1: ret\n"
        ".globl divide\ndivide: fninit\n fld1\nat_division: fdivs zero(%rip)\n fnclex\n ret\n");
void load(void);
void divide(void);

static const char *name_of(uint64_t address, uint64_t mask)
{
    if (address == ((uintptr_t)at_load & mask))
        return "the load";
    if (address == ((uintptr_t)at_division & mask))
        return "the division";
    if (address == ((uintptr_t)&zero & mask))
        return "the divisor";
    return address ? "elsewhere" : "nothing";
}

static uint64_t word(const unsigned char *at) { return *(const uint64_t *)at; }
static uint32_t half(const unsigned char *at) { return *(const uint32_t *)at; }

static void wide(const char *what, const unsigned char *at)
{
    say("%s: %s, %s, opcode %x", what, name_of(word(at + 8), -1), name_of(word(at + 16), -1), *(uint16_t *)(at + 6));
}

static void narrow(const char *what, uint32_t instruction, uint32_t data)
{
    say("%s: %s, %s", what, name_of(instruction, 0xffffffff), name_of(data, 0xffffffff));
}

static bool has(unsigned leaf, unsigned subleaf, unsigned bit)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) && (leaf == 1 ? c : a) >> bit & 1;
}

static void stores(void (*execute)(void))
{
    memset(area, 0, sizeof area);
    memset(other, 0, sizeof other);
    execute();
    __asm__ volatile("fxsave64 %0" : "=m"(area));
    wide("fxsave64", area);
    execute();
    __asm__ volatile("fxsave64 (%%rcx)" ::"c"(other) : "memory");
    wide("fxsave64 by rcx", other);
    execute();
    __asm__ volatile("fxsave64 512(%%rcx,%%rax,8)" ::"c"(other), "a"(64) : "memory");
    wide("fxsave64 by two", other + 1024);
    execute();
    __asm__ volatile("fxsave %0" : "=m"(area));
    narrow("fxsave", half(area + 8), half(area + 16));
    execute();
    unsigned char environment[28];
    __asm__ volatile("fnstenv %0" : "=m"(environment));
    narrow("fnstenv", half(environment + 12), half(environment + 20));
    execute();
    __asm__ volatile("subq $256, %%rsp\n fnstenv 64(%%rsp)\n movl 76(%%rsp), %%eax\n movl 84(%%rsp), %%edx\n addq $256, %%rsp"
                     : "=a"(*(uint32_t *)environment), "=d"(*(uint32_t *)(environment + 4))
                     :
                     : "cc", "memory");
    narrow("fnstenv on the stack", half(environment), half(environment + 4));
    execute();
    unsigned char state[108];
    __asm__ volatile("fnsave %0" : "=m"(state));
    narrow("fnsave", half(state + 12), half(state + 20));
    __asm__ volatile("fninit\n fxsave64 %0" : "=m"(area));
    wide("behind fninit", area);
    if (!has(1, 0, 27)) {
        say("no xsave");
        return;
    }
    memset(area, 0, sizeof area);
    execute();
    __asm__ volatile("xsave64 %0" : "+m"(area) : "a"(3), "d"(0));
    wide("xsave64", area);
    memset(area, 0, sizeof area);
    execute();
    __asm__ volatile("xsave64 %0" : "+m"(area) : "a"(2), "d"(0));
    wide("xsave64 without it", area);
    if (has(13, 1, 0)) {
        memset(area, 0, sizeof area);
        execute();
        __asm__ volatile("xsaveopt64 %0" : "+m"(area) : "a"(7), "d"(0));
        wide("xsaveopt64", area);
    }
    if (has(13, 1, 1)) {
        memset(area, 0, sizeof area);
        execute();
        __asm__ volatile("xsavec64 %0" : "+m"(area) : "a"(3), "d"(0));
        wide("xsavec64", area);
        __asm__ volatile("fninit\n xrstor64 %0\n fxsave64 %1" : "+m"(area), "=m"(other) : "a"(3), "d"(0) : "memory");
        wide("restored", other);
    }
}

static unsigned char in_frame[512];
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    memcpy(in_frame, ((ucontext_t *)context)->uc_mcontext.fpregs, sizeof in_frame);
    __asm__ volatile("fninit");
}

static void in_signals(void)
{
    on_signal(SIGUSR1, handler, 0);
    load();
    raise(SIGUSR1);
    wide("in a frame", in_frame);
    __asm__ volatile("fxsave64 %0" : "=m"(area));
    wide("behind the handler", area);
    divide();
    raise(SIGUSR1);
    wide("in a frame", in_frame);
}

static sigjmp_buf back;
static void on_exception(int number, siginfo_t *info, void *context)
{
    memcpy(in_frame, ((ucontext_t *)context)->uc_mcontext.fpregs, sizeof in_frame);
    say("signal %d, code %d", number, info->si_code);
    siglongjmp(back, 1);
}

static void exceptions(void)
{
    on_signal(SIGFPE, on_exception, 0);
    unsigned short control = 0x37b;
    if (!sigsetjmp(back, 1)) {
        __asm__ volatile("fninit\n fldcw %0\n fld1\n fdivs %1\n fwait" ::"m"(control), "m"(zero));
        say("no exception");
    }
    say("in its frame: %s", name_of(word(in_frame + 16), -1));
    /* The pointers are the division's, which lies in this function. */
    uint64_t division = word(in_frame + 8), here = (uintptr_t)exceptions;
    say("at a place %s", division > here && division < here + 4096 ? "here" : "elsewhere");
    __asm__ volatile("fninit");
}

/* Nothing else changes. */
static void registers(void)
{
    uint64_t flags, rcx = 0x1234567890, r11 = 0x9876543210, rax = 77;
    load();
    __asm__ volatile("movq %1, %%rcx\n movq %2, %%r11\n movq %3, %%rax\n stc\n fxsave64 %4\n pushfq\n popq %0\n"
                     "movq %%rcx, %1\n movq %%r11, %2\n movq %%rax, %3\n"
                     : "=&r"(flags), "+m"(rcx), "+m"(r11), "+m"(rax), "=m"(area)
                     :
                     : "rax", "rcx", "r11", "cc");
    CHECK_EQ(flags & 1, 1, "the carry");
    CHECK(rcx == 0x1234567890 && r11 == 0x9876543210 && rax == 77, "%lx %lx %lx", rcx, r11, rax);
}

int main(void)
{
    say("behind a load");
    stores(load);
    say("behind a division by zero");
    stores(divide);
    RUN(in_signals);
    RUN(exceptions);
    RUN(registers);
    return done();
}

/* Promise: F7, F35 */
