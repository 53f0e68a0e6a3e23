//@ variants: pie static
//@ cflags: -O1 -mno-avx
/* xmm, ymm, zmm and mask registers survive transfers, first executions, system calls, handled faults
 * and asynchronous signals. */
#include "check.h"

/* 256 routines that are each called once per use, so that their first execution is inside the probe. */
__asm__(".text\n.balign 16\n.globl cold_code\ncold_code:\n.rept 256\n .balign 16\n nop\n ret\n.endr\n");
extern char cold_code[];

static char *next_cold;
static volatile int handled;
static void *fault_page;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    /* Clobber vector state here: the return must restore it. */
    __asm__ volatile("pxor %%xmm0, %%xmm0\n pcmpeqd %%xmm15, %%xmm15\n" ::: "xmm0", "xmm15");
    handled++;
    mprotect(fault_page, 4096, PROT_READ | PROT_WRITE);
}

static void on_alarm(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    __asm__ volatile("pcmpeqd %%xmm1, %%xmm1\n pcmpeqd %%xmm14, %%xmm14\n" ::: "xmm1", "xmm14");
    handled++;
}

/* What happens between load and store; in assembly so that nothing but the virtual CPU can touch
 * vector registers. Kinds: 0 nothing, 1 cold calls, 2 system call, 3 fault, 4 spin for signals. */
__asm__(".globl disturb\ndisturb:\n"
        " cmpl $1, %edi\n je 1f\n cmpl $2, %edi\n je 2f\n cmpl $3, %edi\n je 3f\n cmpl $4, %edi\n je 4f\n ret\n"
        "1: movl $16, %ecx\n5: call *%rsi\n addq $16, %rsi\n decl %ecx\n jnz 5b\n ret\n"
        "2: movl $39, %eax\n syscall\n ret\n"
        "3: movl $1, (%rsi)\n ret\n"
        "4: movq $40000000, %rcx\n6: decq %rcx\n jz 7f\n cmpl $3, (%rsi)\n jb 6b\n7: ret\n");

#define XMM(n) "movdqu " #n "*16(%[in]), %%xmm" #n "\n"
#define XMM_OUT(n) "movdqu %%xmm" #n ", " #n "*16(%[out])\n"
#define YMM(n) "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define YMM_OUT(n) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"
#define ZMM(n) "vmovdqu64 " #n "*64(%[in]), %%zmm" #n "\n"
#define ZMM_OUT(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%[out])\n"
#define MASK(n) "kmovq 2048+" #n "*8(%[in]), %%k" #n "\n"
#define MASK_OUT(n) "kmovq %%k" #n ", 2048+" #n "*8(%[out])\n"
#define TO7(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define TO15(F) TO7(F) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define TO31(F)                                                                                    \
    TO15(F) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29)    \
        F(30) F(31)

#define PROBE(name, LOADS, STORES)                                                                 \
    __attribute__((noinline)) static void name(const void *in, void *out, int kind, void *arg)     \
    {                                                                                              \
        register const void *rbx __asm__("rbx") = in;                                              \
        register void *r12 __asm__("r12") = out;                                                   \
        __asm__ volatile("addq $-128, %%rsp\n" LOADS "call disturb\n" STORES "subq $-128, %%rsp\n" \
                         : "+D"(kind), "+S"(arg)                                                   \
                         : [in] "r"(rbx), [out] "r"(r12)                                           \
                         : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");         \
    }
PROBE(probe_xmm, TO15(XMM), TO15(XMM_OUT))
PROBE(probe_ymm, TO15(YMM), TO15(YMM_OUT) "vzeroupper\n")
PROBE(probe_zmm, TO31(ZMM) TO7(MASK), TO31(ZMM_OUT) TO7(MASK_OUT) "vzeroupper\n")

static unsigned char in[2048 + 64], out[2048 + 64];

static void try(const char *set, void (*probe)(const void *, void *, int, void *), size_t bytes)
{
    static const char *const kinds[] = {"nothing", "first executions", "a system call", "a fault", "signals"};
    for (int kind = 0; kind < 5; kind++) {
        for (int round = 0; round < 2; round++) {
            for (size_t i = 0; i < bytes; i++)
                in[i] = (unsigned char)(i * 7 + i / 64 * 13 + kind + round * 101);
            memset(out, 0, sizeof out);
            handled = 0;
            void *arg = kind == 1 ? next_cold : kind == 3 ? fault_page : (void *)&handled;
            if (kind == 3)
                MUST(mprotect(fault_page, 4096, PROT_READ) == 0);
            struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
            if (kind == 4)
                setitimer(ITIMER_REAL, &timer, NULL);
            probe(in, out, kind, arg);
            setitimer(ITIMER_REAL, &off, NULL);
            if (kind == 1)
                next_cold += 16 * 16;
            if (kind == 3)
                CHECK_EQ(handled, 1, "the fault was handled");
            if (kind == 4)
                CHECK(handled >= 3, "only %d signals", handled);
            size_t bad = 0;
            while (bad < bytes && in[bad] == out[bad])
                bad++;
            CHECK_EQ(bad, bytes, "%s state changed across %s (byte %zu)", set, kinds[kind], bad);
        }
    }
}

int main(void)
{
    next_cold = cold_code;
    fault_page = map_pages(4096, PROT_READ);
    on_signal(SIGSEGV, on_fault, 0);
    on_signal(SIGALRM, on_alarm, 0);
    try("xmm", probe_xmm, 256);
    if (__builtin_cpu_supports("avx2"))
        try("ymm", probe_ymm, 512);
    else
        say("# no AVX2");
    if (__builtin_cpu_supports("avx512bw"))
        try("zmm and k", probe_zmm, 2048 + 64);
    else
        say("# no AVX-512");
    return done();
}

/* Promise: F7 */
