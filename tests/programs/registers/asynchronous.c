//@ variants: pie static
//@ cflags: -O1
/* Loops hold every register at a known value while a timer fires; the handler verifies the whole
 * context. An instruction pointer that is not the start of one of the loop's instructions, or a
 * register that belongs to the virtual CPU, is seen here. */
#include "check.h"

enum { WANTED = 400 };

/* Every instruction of a loop is written through I, which records its address. */
__asm__(
    ".text\n"
    ".macro I text:vararg\n991: \\text\n.pushsection .data.rel.ro.starts, \"aw\"\n.quad 991b\n.popsection\n.endm\n"
    ".pushsection .data.rel.ro.starts, \"aw\"\n.balign 8\n.globl starts\nstarts:\n.popsection\n"
    ".globl hold, hold_begin, hold_end, hold_exit, hold_return\n"
    "hold: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    " movq %rsp, stack_base(%rip)\n"
    /* red zone */
    " movq $0x5a5a5a, %rax\n movq %rax, -16(%rsp)\n movq %rax, -24(%rsp)\n movq %rax, -120(%rsp)\n"
    " movq %rax, -128(%rsp)\n"
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    " movq $0x0101010101010101 * \\n, %rax\n movq %rax, %xmm\\n\n punpcklqdq %xmm\\n, %xmm\\n\n"
    ".endr\n"
    " movq $0xa0a0a0a0a0a0a0a0, %rax\n movq $0xb0b0b0b0b0b0b0b0, %rbx\n movq $0xc0c0c0c0c0c0c0c0, %rcx\n"
    " movq $0xd0d0d0d0d0d0d0d0, %rdx\n movq $0xe0e0e0e0e0e0e0e0, %rsi\n movq $0xf0f0f0f0f0f0f0f0, %rdi\n"
    " movq $0x0b0b0b0b0b0b0b0b, %rbp\n movq $0x0808080808080808, %r8\n movq $0x0909090909090909, %r9\n"
    " movq $0x1010101010101010, %r10\n movq $0x1111111111111111, %r11\n movq $0x1212121212121212, %r12\n"
    " movq $0x1313131313131313, %r13\n movq $0x1414141414141414, %r14\n movq $0x1515151515151515, %r15\n"
    /* CF PF AF ZF SF OF and DF */
    " pushq $0xed7\n popfq\n"
    "hold_begin:\n"
    "1: I movl $1, loop_entered(%rip)\n I movq %rcx, %rcx\n I xchgq %r11, %r11\n I leaq 0(%rax), %rax\n"
    " I jnc 9f\n"
    " I jmp 2f\n ud2\n"
    "2: I jrcxz 9f\n"
    " I call hold_callee\n"
    "hold_return: I call *hold_pointer(%rip)\n"
    "hold_return2: I jmp *hold_next(%rip)\n ud2\n"
    "hold_third: I movdqa %xmm3, %xmm3\n I bswapq %r11\n I bswapq %r11\n I jo 1b\n ud2\n"
    "9: ud2\n"
    "hold_callee: I nop\n I jo 4f\n ud2\n4: I ret\n"
    "hold_end:\n"
    "hold_exit: cld\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n"
    /* A loop in which each instruction brings one register one ahead. */
    ".globl march, march_begin, march_end, march_exit\n"
    "march: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    " movq %rsp, stack_base(%rip)\n xorl %eax, %eax\n xorl %ebx, %ebx\n xorl %ecx, %ecx\n xorl %edx, %edx\n"
    " xorl %esi, %esi\n xorl %edi, %edi\n xorl %ebp, %ebp\n xorl %r8d, %r8d\n xorl %r9d, %r9d\n xorl %r10d, %r10d\n"
    " xorl %r11d, %r11d\n xorl %r12d, %r12d\n movq $0, march_word(%rip)\n"
    "march_begin:\n"
    "I movl $1, loop_entered(%rip)\n"
    "1: I incq %rax\n I incq %rcx\n I incq %r11\n I addq $1, %rdx\n I leaq 1(%rbx), %rbx\n I jmp 2f\n ud2\n"
    "2: I incq %rsi\n I cmpq %rsi, %rdi\n I jb 3f\n ud2\n3: I incq %rdi\n I incq march_word(%rip)\n"
    " I call 4f\n I jmp *march_next(%rip)\n ud2\n4: I incq %r8\n I ret\n"
    "march_fifth: I incq %r9\n I testb $1, %al\n I jz 6f\n I incq %r10\n I jmp 1b\n6: I incq %r10\n I jmp 1b\n"
    "march_end:\n"
    "march_exit: popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n"
    ".pushsection .data.rel.ro.starts, \"aw\"\n.globl starts_end\nstarts_end:\n.popsection\n"
    ".data\n.balign 8\n.globl stack_base, march_word, loop_entered\nstack_base: .quad 0\nloop_entered: .quad 0\nhold_pointer: .quad hold_callee\n"
    "hold_next: .quad hold_third\nmarch_next: .quad march_fifth\nmarch_word: .quad 0\n.text\n");

extern const uint64_t starts[], starts_end[];
extern char hold_begin[], hold_end[], hold_exit[], hold_return[], march_begin[], march_end[], march_exit[];
extern uint64_t stack_base, march_word;
extern volatile int loop_entered;
void hold(void);
void march(void);

static volatile int signals;
static volatile bool stop_now;

static bool is_start(uint64_t rip)
{
    for (const uint64_t *s = starts; s < starts_end; s++)
        if (*s == rip)
            return true;
    return false;
}

static bool place_is_right(uint64_t rip, char *begin, char *end)
{
    CHECK(rip >= (uintptr_t)begin && rip < (uintptr_t)end, "rip %#llx is outside %p..%p",
          (unsigned long long)rip, begin, end);
    CHECK(is_start(rip), "rip %#llx is not the start of an instruction", (unsigned long long)rip);
    return check_failures == 0;
}

static void in_hold(int number, siginfo_t *info, void *context)
{
    static const struct { int reg; uint64_t value; const char *name; } want[] = {
        {REG_RAX, 0xa0a0a0a0a0a0a0a0, "rax"}, {REG_RBX, 0xb0b0b0b0b0b0b0b0, "rbx"},
        {REG_RCX, 0xc0c0c0c0c0c0c0c0, "rcx"}, {REG_RDX, 0xd0d0d0d0d0d0d0d0, "rdx"},
        {REG_RSI, 0xe0e0e0e0e0e0e0e0, "rsi"}, {REG_RDI, 0xf0f0f0f0f0f0f0f0, "rdi"},
        {REG_RBP, 0x0b0b0b0b0b0b0b0b, "rbp"}, {REG_R8, 0x0808080808080808, "r8"},
        {REG_R9, 0x0909090909090909, "r9"},   {REG_R10, 0x1010101010101010, "r10"},
        {REG_R12, 0x1212121212121212, "r12"}, {REG_R13, 0x1313131313131313, "r13"},
        {REG_R14, 0x1414141414141414, "r14"}, {REG_R15, 0x1515151515151515, "r15"},
        {REG_R11, 0x1111111111111111, "r11"},
    };
    (void)number, (void)info;
    if (!loop_entered || stop_now) /* not there yet, or on the way out */
        return;
    greg_t *regs = regs_of(context);
    struct _libc_fpstate *fp = ((ucontext_t *)context)->uc_mcontext.fpregs;
    uint64_t rip = regs[REG_RIP];
    place_is_right(rip, hold_begin, hold_end);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_EQ(regs[want[i].reg], want[i].value, "%s at rip begin+%#llx", want[i].name,
                 (unsigned long long)(rip - (uintptr_t)hold_begin));
    CHECK_EQ(regs[REG_EFL] & 0xcd5, 0xcd5, "flags at rip begin+%#llx",
             (unsigned long long)(rip - (uintptr_t)hold_begin));
    for (int x = 0; x < 16; x++)
        for (int part = 0; part < 4; part++)
            CHECK_EQ(fp->_xmm[x].element[part], 0x01010101u * x, "xmm%d", x);
    uint64_t rsp = regs[REG_RSP];
    CHECK(rsp == stack_base || rsp == stack_base - 8, "rsp is %#llx", (unsigned long long)rsp);
    if (rsp == stack_base - 8) {
        uint64_t back = *(uint64_t *)rsp;
        CHECK(is_start(back) && back >= (uintptr_t)hold_return, "return address %#llx",
              (unsigned long long)back);
    }
    uint64_t *base = (uint64_t *)stack_base;
    CHECK(base[-2] == 0x5a5a5a && base[-3] == 0x5a5a5a && base[-15] == 0x5a5a5a && base[-16] == 0x5a5a5a,
          "the red zone is intact");
    /* The way out is taken only where the stack is level. */
    if ((++signals >= WANTED || check_failures) && rsp == stack_base) {
        regs[REG_RIP] = (uintptr_t)hold_exit;
        stop_now = true;
    }
}

static void in_march(int number, siginfo_t *info, void *context)
{
    /* Registers in the order in which the loop advances them; each is equal to or one behind the one
     * before it, and exactly one of the steps may be "behind". */
    static const int order[] = {REG_RAX, REG_RCX, REG_R11, REG_RDX, REG_RBX, REG_RSI, REG_RDI};
    (void)number, (void)info;
    if (!loop_entered || stop_now) /* not there yet, or on the way out */
        return;
    greg_t *regs = regs_of(context);
    uint64_t rip = regs[REG_RIP];
    if (rip == (uintptr_t)march_begin)
        return;
    place_is_right(rip, march_begin, march_end);
    uint64_t value[11];
    for (int i = 0; i < 7; i++)
        value[i] = regs[order[i]];
    value[7] = march_word;
    value[8] = regs[REG_R8];
    value[9] = regs[REG_R9];
    value[10] = regs[REG_R10];
    /* How many counters the instructions before rip have advanced in this round. */
    static const struct { int after; int advanced; } places[] = {
        {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 5}, {7, 6}, {8, 6}, {9, 6}, {10, 7}, {11, 8},
        {12, 9}, /* the jump after the call */ {13, 8}, {14, 9}, {15, 9}, {16, 10}, {17, 10}, {18, 10},
        {19, 11}, {20, 10}, {21, 11},
    };
    int index = -1;
    const uint64_t *first = starts;
    while (*first != (uintptr_t)march_begin)
        first++;
    first++; /* behind the instruction that says the loop is entered */
    for (int i = 0; i < 22; i++)
        if (first[i] == rip)
            index = i;
    MUST(index >= 0);
    int advanced = places[index].advanced;
    for (int i = 0; i < 11; i++)
        CHECK_EQ(value[i], value[0] - (i >= advanced && advanced > 0), "counter %d at instruction %d", i, index);
    bool in_callee = index == 13 || index == 14;
    CHECK_EQ(regs[REG_RSP], stack_base - 8 * in_callee, "rsp at instruction %d", index);
    if ((++signals >= WANTED || check_failures) && !in_callee) {
        regs[REG_RIP] = (uintptr_t)march_exit;
        stop_now = true;
    }
}

static void with_timer(void (*handler)(int, siginfo_t *, void *), void (*loop)(void), int flags)
{
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    signals = 0;
    stop_now = false;
    loop_entered = 0;
    on_signal(SIGALRM, handler, flags);
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    loop();
    setitimer(ITIMER_REAL, &off, NULL);
    signal(SIGALRM, SIG_IGN);
    CHECK(signals >= WANTED, "only %d signals", signals);
}

static void registers_held(void) { with_timer(in_hold, hold, 0); }
static void registers_held_on_alternate_stack(void) { with_timer(in_hold, hold, SA_ONSTACK); }
static void registers_advancing(void) { with_timer(in_march, march, SA_ONSTACK); }

int main(void)
{
    RUN(registers_held);
    if (!check_failures)
        RUN(registers_held_on_alternate_stack);
    if (!check_failures)
        RUN(registers_advancing);
    return done();
}

/* Promise: F7, F8 */
