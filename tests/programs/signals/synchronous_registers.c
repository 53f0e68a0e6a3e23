//@ variants: pie static
//@ cflags: -O1
/* At a fault the handler sees every register as the program left it, may change any of them, and the
 * program goes on with the changes. */
#include "check.h"

__asm__(".text\n.globl fault_all, fault_here, fault_after\n"
        "fault_all: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp, fault_stack(%rip)\n pushq %rdi\n popfq\n"
        " movl $0x101, %eax\n movl $0x102, %ebx\n movl $0x103, %ecx\n movl $0x104, %edx\n movl $0x105, %esi\n"
        " movl $0x106, %edi\n movl $0x107, %ebp\n movl $0x108, %r8d\n movl $0x109, %r9d\n movl $0x10a, %r10d\n"
        " movl $0x10b, %r11d\n movl $0x10c, %r12d\n movl $0x10d, %r13d\n movl $0x10e, %r14d\n movl $0x10f, %r15d\n"
        /* work before the fault in the same block, with dead registers and flags in between */
        " movq %rax, fault_word(%rip)\n xchgq %rax, fault_word(%rip)\n"
        "fault_here: movq (%rax), %rcx\n"
        "fault_next: ud2\n"
        "fault_after: movq %rax, after+0(%rip)\n movq %rbx, after+8(%rip)\n movq %rcx, after+16(%rip)\n"
        " movq %rdx, after+24(%rip)\n movq %rsi, after+32(%rip)\n movq %rdi, after+40(%rip)\n movq %rbp, after+48(%rip)\n"
        " movq %r8, after+56(%rip)\n movq %r9, after+64(%rip)\n movq %r10, after+72(%rip)\n movq %r11, after+80(%rip)\n"
        " movq %r12, after+88(%rip)\n movq %r13, after+96(%rip)\n movq %r14, after+104(%rip)\n movq %r15, after+112(%rip)\n"
        " movq fault_stack(%rip), %rsp\n pushfq\n popq after+120(%rip)\n cld\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n"
        ".data\n.balign 8\n.globl after, fault_stack\nfault_stack: .quad 0\nfault_word: .quad 0\nafter: .zero 128\n.text\n");
void fault_all(uint64_t flags);
extern char fault_here[], fault_after[];
extern uint64_t after[16], fault_stack;

static const int order[15] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_R8,
                              REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
static const char *const names[15] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
                                      "r9", "r10", "r11", "r12", "r13", "r14", "r15"};
static uint64_t want_flags;

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    CHECK_EQ((uintptr_t)info->si_addr, 0x101, "si_addr");
    CHECK_EQ(info->si_code, SEGV_MAPERR, "si_code");
    CHECK_EQ(regs[REG_RIP], (uintptr_t)fault_here, "rip");
    CHECK_EQ(regs[REG_RSP], fault_stack, "rsp");
    CHECK_EQ(regs[REG_EFL] & 0xcd5, want_flags & 0xcd5, "flags");
    CHECK_EQ(regs[REG_ERR] & 7, 4, "error code: a user read of an absent page");
    for (int i = 0; i < 15; i++) {
        CHECK_EQ(regs[order[i]], 0x101 + i, "%s at the fault", names[i]);
        regs[order[i]] = 0x9900000000000000 + i;
    }
    regs[REG_RIP] = (uintptr_t)fault_after;
    regs[REG_EFL] ^= 0x8d5;
    (void)number;
}

int main(void)
{
    on_signal(SIGSEGV, handler, 0);
    static const uint64_t flags[] = {0x202, 0xad7, 0x203, 0x246, 0xed7, 0xa82};
    for (int round = 0; round < 60; round++) {
        want_flags = flags[round % 6];
        fault_all(want_flags);
        for (int i = 0; i < 15; i++)
            CHECK_EQ(after[i], 0x9900000000000000 + i, "%s after the handler", names[i]);
        CHECK_EQ(after[15] & 0xcd5, (want_flags ^ 0x8d5) & 0xcd5, "flags after the handler");
        if (check_failures)
            break;
    }
    return done();
}

/* Promise: F8 */
