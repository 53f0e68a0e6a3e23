//@ variants: pie static
//@ cflags: -O1 -frounding-math
/* x87 stack and control word, MXCSR and its sticky flags, across transfers, signals, fork, threads. */
#include "check.h"
#include <fenv.h>

__asm__(".text\n.globl fp_hop\nfp_hop: leaq 1f(%rip), %rax\n jmp *%rax\n ud2\n1: call 2f\n movl $39, %eax\n"
        " syscall\n ret\n2: ret\n");
void fp_hop(void);

static unsigned mxcsr(void)
{
    unsigned value;
    __asm__ volatile("stmxcsr %0" : "=m"(value));
    return value;
}

static void set_mxcsr(unsigned value)
{
    __asm__ volatile("ldmxcsr %0" ::"m"(value));
}

static unsigned control_word(void)
{
    unsigned short value;
    __asm__ volatile("fnstcw %0" : "=m"(value));
    return value;
}

static void stack_survives(void)
{
    long double values[8];
    __asm__ volatile("fninit\n fldpi\n fld1\n fldl2e\n fldlg2\n fldln2\n fldz\n fldl2t\n fld1\n fchs\n"
                     "leaq 1f(%%rip), %%rax\n pushq %%rax\n ret\n ud2\n 1: call fp_hop\n"
                     "fstpt 0(%0)\n fstpt 16(%0)\n fstpt 32(%0)\n fstpt 48(%0)\n fstpt 64(%0)\n fstpt 80(%0)\n"
                     "fstpt 96(%0)\n fstpt 112(%0)\n"
                     :
                     : "r"(values)
                     : "rax", "rcx", "r11", "memory", "cc", "st", "st(1)", "st(2)", "st(3)", "st(4)",
                       "st(5)", "st(6)", "st(7)");
    for (int i = 0; i < 8; i++)
        say("st%d %.18Lg", i, values[i]);
}

static void rounding(void)
{
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i]);
        fp_hop();
        volatile double one = 1, three = 3, big = 1e300;
        volatile float f = 1;
        volatile long double l = 1;
        say("mode %d: %a %a %La mxcsr %#x cw %#x", i, one / three, f / (float)three,
            l / (long double)three, mxcsr() & 0x6000, control_word() & 0xc00);
        CHECK_EQ(fegetround(), modes[i], "the rounding mode stays");
        (void)big;
    }
    fesetround(FE_TONEAREST);
}

static void sticky_flags(void)
{
    set_mxcsr(0x1f80);
    volatile double zero = 0, one = 1, huge = 1e308, tiny = 1e-308;
    volatile double r = one / zero;
    fp_hop();
    CHECK_EQ(mxcsr(), 0x1f84, "divide by zero is flagged");
    r = huge * huge;
    fp_hop();
    CHECK_EQ(mxcsr() & 0x3f, 0x2c, "overflow is flagged");
    r = tiny * tiny;
    r = zero / zero;
    fp_hop();
    CHECK_EQ(mxcsr() & 0x3d, 0x3d, "underflow and invalid are flagged");
    set_mxcsr(0x1f80);
    CHECK_EQ(mxcsr(), 0x1f80, "flags can be cleared");
    set_mxcsr(0x9fc0); /* flush to zero, denormals are zero */
    r = tiny / 1e10;
    CHECK(r == 0, "flush to zero: %a", r);
    set_mxcsr(0x1f80);
    r = tiny / 1e10;
    CHECK(r != 0, "gradual underflow: %a", r);
    set_mxcsr(0x1f80);
}

static volatile unsigned seen_mxcsr, seen_cw;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    seen_mxcsr = ((ucontext_t *)context)->uc_mcontext.fpregs->mxcsr;
    seen_cw = ((ucontext_t *)context)->uc_mcontext.fpregs->cwd;
    set_mxcsr(0x1f80);
    __asm__ volatile("fninit");
}

static void in_signals(void)
{
    on_signal(SIGUSR1, handler, 0);
    fesetround(FE_UPWARD);
    raise(SIGUSR1);
    CHECK_EQ(seen_mxcsr & 0x6000, 0x4000, "the frame has the rounding mode");
    CHECK_EQ(seen_cw & 0xc00, 0x800, "the frame has the control word");
    CHECK_EQ(mxcsr() & 0x6000, 0x4000, "MXCSR is restored");
    CHECK_EQ(control_word() & 0xc00, 0x800, "the control word is restored");
    fesetround(FE_TONEAREST);
}

static void child(void)
{
    CHECK_EQ(mxcsr() & 0x6000, 0x6000, "MXCSR in a child");
}

static void *thread(void *arg)
{
    CHECK_EQ(mxcsr() & 0x6000, 0x6000, "MXCSR in a thread");
    set_mxcsr(0x1f80 | 0x2000);
    return arg;
}

static void inherited(void)
{
    fesetround(FE_TOWARDZERO);
    CHECK_EQ(in_child(child), 0, "child");
    pthread_t id;
    MUST(pthread_create(&id, NULL, thread, NULL) == 0);
    pthread_join(id, NULL);
    CHECK_EQ(mxcsr() & 0x6000, 0x6000, "MXCSR is per thread");
    fesetround(FE_TONEAREST);
}

int main(void)
{
    RUN(stack_survives);
    RUN(rounding);
    RUN(sticky_flags);
    RUN(in_signals);
    RUN(inherited);
    return done();
}

/* Promise: F7 */
