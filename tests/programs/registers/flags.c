//@ variants: pie static
/* The six arithmetic flags and DF survive every control transfer. */
#include "check.h"

/* Each routine loads rdi into rflags, makes one transfer, and returns what rflags is then. */
__asm__(
    ".text\n"
    ".macro BEGIN name\n .globl \\name\n\\name: pushq %rdi\n popfq\n.endm\n"
    ".macro END\n pushfq\n popq %rax\n cld\n ret\n.endm\n"
    "plain_return: ret\n"
    "BEGIN f_call\n call plain_return\n END\n"
    "BEGIN f_call_reg\n leaq plain_return(%rip), %rax\n call *%rax\n END\n"
    "BEGIN f_call_r11\n leaq plain_return(%rip), %r11\n call *%r11\n END\n"
    "BEGIN f_call_mem\n call *plain_pointer(%rip)\n END\n"
    "BEGIN f_call_stack\n leaq plain_return(%rip), %rax\n pushq %rax\n call *(%rsp)\n"
    " leaq 8(%rsp), %rsp\n END\n"
    "BEGIN f_jmp\n jmp 1f\n ud2\n1: END\n"
    "BEGIN f_jmp_reg\n leaq 1f(%rip), %rcx\n jmp *%rcx\n ud2\n1: END\n"
    "BEGIN f_jmp_mem\n leaq 1f(%rip), %rcx\n pushq %rcx\n leaq 8(%rsp), %rsp\n jmp *-8(%rsp)\n ud2\n1: END\n"
    "BEGIN f_ret\n leaq 1f(%rip), %rcx\n pushq %rcx\n ret\n ud2\n1: END\n"
    "BEGIN f_ret_imm\n leaq 1f(%rip), %rcx\n pushq %rcx\n pushq %rcx\n ret $8\n ud2\n1: END\n"
    "BEGIN f_jrcxz\n movl $0, %ecx\n jrcxz 1f\n ud2\n1: END\n"
    "BEGIN f_jecxz_not\n movl $1, %ecx\n jecxz 2f\n jmp 1f\n2: ud2\n1: END\n"
    "BEGIN f_loop\n movl $5, %ecx\n1: loop 1b\n END\n"
    "BEGIN f_jcc_chain\n jz 1f\n jc 1f\n js 1f\n jo 1f\n jp 1f\n nop\n1: jnz 2f\n nop\n2: jnc 3f\n nop\n"
    "3: jbe 4f\n nop\n4: jl 5f\n nop\n5: jle 6f\n nop\n6: END\n"
    "BEGIN f_setcc_cmov\n setc %al\n cmovz %rdx, %rdx\n setle %al\n END\n"
    "BEGIN f_lea_mov\n leaq 1(%rdi,%rdi,4), %rax\n movq %rax, %rdx\n notq %rdx\n xchgq %rax, %rdx\n"
    " bswap %rax\n pushq %rax\n popq %rdx\n movzbl %dl, %eax\n END\n"
    "BEGIN f_rip_load\n movq plain_pointer(%rip), %rax\n END\n"
    "BEGIN f_call_deep\n call 1f\n END\n1: call 2f\n ret\n2: call 3f\n ret\n3: leaq plain_return(%rip), %rax\n"
    " call *%rax\n ret\n"
    "BEGIN f_cpuid\n pushq %rbx\n xorq %rcx, %rcx\n pushq %rdi\n popfq\n movl $0, %eax\n cpuid\n popq %rbx\n END\n"
    "BEGIN f_rdtsc\n rdtsc\n END\n"
    ".data\n.balign 8\nplain_pointer: .quad plain_return\n.text\n");

typedef uint64_t routine(uint64_t flags);
#define ROUTINES(X)                                                                                \
    X(f_call) X(f_call_reg) X(f_call_r11) X(f_call_mem) X(f_call_stack) X(f_jmp) X(f_jmp_reg)      \
    X(f_jmp_mem) X(f_ret) X(f_ret_imm) X(f_jrcxz) X(f_jecxz_not) X(f_loop) X(f_jcc_chain)          \
    X(f_setcc_cmov) X(f_lea_mov) X(f_rip_load) X(f_call_deep) X(f_cpuid) X(f_rdtsc)
#define DECLARE(name) routine name;
ROUTINES(DECLARE)

enum { CF = 1, PF = 4, AF = 0x10, ZF = 0x40, SF = 0x80, DF = 0x400, OF = 0x800 };
static const unsigned bits[] = {CF, PF, AF, ZF, SF, OF, DF};
enum { ALL = CF | PF | AF | ZF | SF | OF | DF };

static void sweep(const char *name, routine *function)
{
    for (unsigned set = 0; set < 128; set++) {
        uint64_t flags = 0x202;
        for (int bit = 0; bit < 7; bit++)
            if (set >> bit & 1)
                flags |= bits[bit];
        uint64_t after = function(flags);
        CHECK_EQ(after & ALL, flags & ALL, "%s changed the flags", name);
    }
}

/* A carry returned in CF, the way hand-written assembly does. */
__asm__(".globl carry_of\ncarry_of: cmpq %rsi, %rdi\n ret\n"
        ".globl use_carry\nuse_carry: call carry_of\n sbbq %rax, %rax\n ret\n"
        ".globl use_carry_indirect\nuse_carry_indirect: leaq carry_of(%rip), %rdx\n call *%rdx\n"
        " adcq $0, %rcx\n setc %dl\n movl $0, %eax\n jnc 1f\n movl $1, %eax\n1: ret\n"
        ".globl condition_word\ncondition_word: call carry_of\n movl $0, %eax\n seto %al\n shll $1, %eax\n"
        " call carry_of\n pushfq\n popq %rdx\n andl $0x8d5, %edx\n shll $12, %eax\n orl %edx, %eax\n ret\n");
int64_t use_carry(uint64_t a, uint64_t b);
uint32_t condition_word(int64_t a, int64_t b);

static void returned_in_carry(void)
{
    for (uint64_t a = 0; a < 50; a++)
        for (uint64_t b = 0; b < 50; b++)
            CHECK_EQ(use_carry(a, b), a < b ? -1 : 0, "CF out of a call for %llu, %llu",
                     (unsigned long long)a, (unsigned long long)b);
    static const int64_t edge[] = {0, 1, -1, INT64_MAX, INT64_MIN, 0x7f, 0x80, 0xff, 0x100};
    uint32_t sum = 0;
    for (size_t i = 0; i < 9; i++)
        for (size_t j = 0; j < 9; j++)
            sum = sum * 31 + condition_word(edge[i], edge[j]);
    say("condition words %08x", sum);
}

int main(void)
{
#define SWEEP(name) sweep(#name, name);
    ROUTINES(SWEEP)
    RUN(returned_in_carry);
    return done();
}

/* Promise: F7 */
