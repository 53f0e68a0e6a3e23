//@ variants: pie static
//@ cflags: -O1
/* Handlers that edit the ucontext: skip an instruction, emulate one, redirect, change stack and flags,
 * vector registers; and rt_sigreturn with a frame of the program's own making. */
#include "check.h"

static void skip_ud2(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    greg_t *regs = regs_of(context);
    CHECK(memcmp((void *)regs[REG_RIP], "\x0f\x0b", 2) == 0, "rip is at ud2");
    regs[REG_RIP] += 2;
    regs[REG_RAX]++;
}

static void skip(void)
{
    on_signal(SIGILL, skip_ud2, 0);
    uint64_t rax = 5;
    for (int i = 0; i < 500; i++)
        __asm__ volatile("ud2\n addq $1, %0\n ud2" : "+a"(rax));
    CHECK_EQ(rax, 5 + 1500, "instructions around ud2");
    signal(SIGILL, SIG_DFL);
}

static void emulate_load(int number, siginfo_t *info, void *context)
{
    (void)number;
    greg_t *regs = regs_of(context);
    /* 48 8b 01: movq (%rcx), %rax */
    CHECK(memcmp((void *)regs[REG_RIP], "\x48\x8b\x01", 3) == 0, "rip is at the load");
    CHECK_EQ((uintptr_t)info->si_addr, regs[REG_RCX], "si_addr is rcx");
    regs[REG_RAX] = regs[REG_RCX] * 3;
    regs[REG_RIP] += 3;
}

static void emulate(void)
{
    on_signal(SIGSEGV, emulate_load, 0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t rax = 0;
        __asm__ volatile("movq (%1), %0" : "+a"(rax) : "c"(i * 8));
        sum += rax;
    }
    CHECK_EQ(sum, 3 * 8 * 499 * 500 / 2, "emulated loads");
    signal(SIGSEGV, SIG_DFL);
}

static volatile int redirected;
static char other_stack[65536] __attribute__((aligned(16)));
__asm__(".text\n.globl redirect_target\nredirect_target: subq $8, %rsp\n call redirect_body\n addq $8, %rsp\n"
        " movq redirect_home(%rip), %rsp\n jmp *redirect_back(%rip)\n"
        ".globl redirect_test\nredirect_test: pushq %rbx\n movq %rsp, redirect_home(%rip)\n"
        " leaq 1f(%rip), %rax\n movq %rax, redirect_back(%rip)\n ud2\n ud2\n1: popq %rbx\n ret\n"
        ".data\n.balign 8\nredirect_home: .quad 0\nredirect_back: .quad 0\n.text\n");
void redirect_test(void);
extern char redirect_target[];
__attribute__((used)) void redirect_body(uint64_t a)
{
    char local;
    CHECK(&local > other_stack && &local < other_stack + sizeof other_stack, "on the other stack");
    CHECK_EQ(a, 0x7777, "argument in rdi");
    redirected++;
}

static void redirect_handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    greg_t *regs = regs_of(context);
    regs[REG_RIP] = (uintptr_t)redirect_target;
    regs[REG_RSP] = (uintptr_t)other_stack + sizeof other_stack;
    regs[REG_RDI] = 0x7777;
}

static void redirect(void)
{
    on_signal(SIGILL, redirect_handler, 0);
    for (int i = 0; i < 100; i++)
        redirect_test();
    CHECK_EQ(redirected, 100, "redirections");
}

static void change_vectors(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    struct _libc_fpstate *fp = ((ucontext_t *)context)->uc_mcontext.fpregs;
    CHECK_EQ(fp->_xmm[5].element[0], 0x55555555, "xmm5 in the frame");
    fp->_xmm[5].element[0] = 0x12345678;
    fp->mxcsr |= 0x6000;
    regs_of(context)[REG_RIP] += 2;
    regs_of(context)[REG_EFL] |= 0x8d5;
}

static void vectors(void)
{
    on_signal(SIGILL, change_vectors, 0);
    uint32_t in[4] = {0x55555555, 1, 2, 3}, out[4], mxcsr;
    uint64_t flags;
    __asm__ volatile("movdqu %3, %%xmm5\n ud2\n pushfq\n popq %2\n movdqu %%xmm5, %0\n stmxcsr %1"
                     : "=m"(out), "=m"(mxcsr), "=r"(flags) : "m"(in) : "xmm5", "cc");
    __asm__ volatile("ldmxcsr %0" ::"m"((uint32_t){0x1f80}));
    CHECK_EQ(out[0], 0x12345678, "xmm5 after the handler");
    CHECK_EQ(out[3], 3, "the rest of xmm5");
    CHECK_EQ(mxcsr & 0x6000, 0x6000, "MXCSR after the handler");
    CHECK_EQ(flags & 0x8d5, 0x8d5, "flags after the handler");
    signal(SIGILL, SIG_DFL);
}

/* A saved frame is used again, later, from somewhere else: what a thread scheduler in user space does. */
static ucontext_t kept;
static char kept_fp[16384] __attribute__((aligned(64)));
static volatile int resumed;
static void keep(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    memcpy(&kept, context, sizeof kept);
    struct _libc_fpstate *fp = kept.uc_mcontext.fpregs;
    /* Size of the whole state is in the software-reserved bytes: magic, extended size. */
    uint32_t magic, size;
    memcpy(&magic, (char *)fp + 464, 4);
    memcpy(&size, (char *)fp + 468, 4);
    if (magic != 0x46505853 || size > sizeof kept_fp)
        size = 512;
    memcpy(kept_fp, fp, size);
    kept.uc_mcontext.fpregs = (void *)kept_fp;
}

/* rsp must point at the ucontext, as it does when a handler returns. */
__asm__(".text\n.globl return_to_frame\nreturn_to_frame: movq %rdi, %rsp\n movl $15, %eax\n syscall\n ud2\n");
__attribute__((noreturn)) void return_to_frame(void *frame);

static void own_frame(void)
{
    on_signal(SIGUSR1, keep, 0);
    volatile int rounds = 0;
    /* In line, so that the frame's stack is still there when it is returned to. */
    long result = SYS_kill;
    __asm__ volatile("syscall" : "+a"(result) : "D"((long)getpid()), "S"((long)SIGUSR1) : "rcx", "r11", "memory");
    CHECK_EQ(result, 0, "the interrupted call's result");
    rounds = rounds + 1;
    if (rounds < 50) {
        resumed++;
        return_to_frame(&kept);
    }
    CHECK_EQ(rounds, 50, "returns into one frame");
    CHECK_EQ(resumed, 49, "returns into one frame");
}

int main(void)
{
    RUN(skip);
    RUN(emulate);
    RUN(redirect);
    RUN(vectors);
    RUN(own_frame);
    return done();
}

/* Promise: F8 */
