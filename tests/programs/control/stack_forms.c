//@ variants: pie no-pie static
/* Control transfer and stack instructions in their rarer forms. Each routine returns a number; a wrong
 * path ends in ud2. */
#include "check.h"

__asm__(
    ".text\n"
    ".macro ROUTINE name\n.globl \\name\n\\name:\n.endm\n"
    /* ret imm16 removes the caller's arguments. */
    "ROUTINE r_ret_imm\n movq %rsp, %rdx\n pushq $1\n pushq $2\n pushq $3\n call 1f\n subq %rsp, %rdx\n movq %rdx, %rax\n ret\n"
    "1: ret $24\n"
    "ROUTINE r_ret_imm_zero\n movq %rsp, %rdx\n call 1f\n subq %rsp, %rdx\n movq %rdx, %rax\n ret\n1: ret $0\n"
    "ROUTINE r_ret_imm_large\n movq %rsp, %rdx\n subq $0x7f00, %rsp\n call 1f\n subq %rsp, %rdx\n movq %rdx, %rax\n ret\n1: ret $0x7f00\n"
    /* call $+5; pop: the program's own address. */
    "ROUTINE r_call_pop\n call 1f\n1: popq %rax\n leaq 1b(%rip), %rdx\n subq %rdx, %rax\n ret\n"
    "ROUTINE r_call_read\n call 1f\n2: ret\n1: movq (%rsp), %rax\n leaq 2b(%rip), %rdx\n subq %rdx, %rax\n ret\n"
    /* the return address is changed by the callee */
    "ROUTINE r_change_return\n call 1f\n ud2\n2: movl $21, %eax\n ret\n1: leaq 2b(%rip), %rdx\n movq %rdx, (%rsp)\n ret\n"
    "ROUTINE r_skip_inline_data\n call 1f\n .quad 0x1122334455667788\n movl $22, %eax\n ret\n1: addq $8, (%rsp)\n ret\n"
    "ROUTINE r_drop_return\n call 1f\n ud2\n1: addq $8, %rsp\n movl $23, %eax\n ret\n"
    "ROUTINE r_push_ret\n leaq 1f(%rip), %rax\n pushq %rax\n ret\n ud2\n1: movl $24, %eax\n ret\n"
    "ROUTINE r_ret_chain\n leaq 3f(%rip), %rax\n pushq %rax\n leaq 2f(%rip), %rax\n pushq %rax\n leaq 1f(%rip), %rax\n pushq %rax\n xorl %eax, %eax\n ret\n"
    "1: incl %eax\n ret\n2: addl $10, %eax\n ret\n3: addl $100, %eax\n ret\n"
    "ROUTINE r_pop_jump\n call 1f\n movl $25, %eax\n ret\n1: popq %rdx\n jmp *%rdx\n"
    /* push and pop of rsp itself and through it */
    "ROUTINE r_push_rsp\n movq %rsp, %rdx\n pushq %rsp\n popq %rax\n subq %rdx, %rax\n ret\n"
    "ROUTINE r_pop_rsp\n movq %rsp, %rax\n pushq %rax\n popq %rsp\n subq %rsp, %rax\n ret\n"
    "ROUTINE r_pop_mem_rsp\n pushq $0\n pushq $77\n popq (%rsp)\n popq %rax\n ret\n"
    "ROUTINE r_pop_mem_rsp8\n pushq $1\n pushq $2\n pushq $78\n popq 8(%rsp)\n popq %rdx\n popq %rax\n ret\n"
    "ROUTINE r_push_mem_rsp\n pushq $79\n pushq (%rsp)\n popq %rax\n popq %rdx\n addq %rdx, %rax\n ret\n"
    "ROUTINE r_push_imm\n pushq $-5\n popq %rax\n pushq $0x12345678\n popq %rdx\n addq %rdx, %rax\n ret\n"
    "ROUTINE r_push16\n movq %rsp, %rdx\n pushw $0x1234\n pushw $0x5678\n movzwl (%rsp), %eax\n addq $4, %rsp\n subq %rsp, %rdx\n addq %rdx, %rax\n ret\n"
    "ROUTINE r_pushf\n movl $0, %eax\n stc\n pushfq\n clc\n popfq\n adcl $0, %eax\n pushfw\n popfw\n adcl $0, %eax\n ret\n"
    /* frames */
    "ROUTINE r_enter\n movq %rsp, %rdx\n pushq %rbp\n enter $64, $0\n movq %rsp, %rax\n subq %rbp, %rax\n negq %rax\n leave\n popq %rbp\n subq %rsp, %rdx\n addq %rdx, %rax\n ret\n"
    "ROUTINE r_enter_nested\n pushq %rbp\n enter $32, $1\n movq -8(%rbp), %rax\n subq %rbp, %rax\n addq $5, %rax\n leave\n popq %rbp\n ret\n"
    "ROUTINE r_leave\n pushq %rbp\n movq %rsp, %rbp\n pushq $1\n pushq $2\n leave\n movl $31, %eax\n ret\n"
    /* targets in memory with rsp as base; call pushes after reading its operand */
    "ROUTINE r_call_rsp\n leaq 1f(%rip), %rax\n pushq %rax\n call *(%rsp)\n popq %rdx\n ret\n1: movl $32, %eax\n ret\n"
    "ROUTINE r_call_rsp_offset\n leaq 1f(%rip), %rax\n pushq %rax\n pushq $0\n call *8(%rsp)\n popq %rdx\n popq %rdx\n ret\n1: movl $33, %eax\n ret\n"
    "ROUTINE r_call_rsp_below\n leaq 1f(%rip), %rax\n movq %rax, -16(%rsp)\n call *-16(%rsp)\n ret\n1: movl $34, %eax\n ret\n"
    "ROUTINE r_call_rsp_overlap\n leaq 1f(%rip), %rax\n movq %rax, -8(%rsp)\n call *-8(%rsp)\n ret\n1: movl $35, %eax\n ret\n"
    "ROUTINE r_call_rsp_index\n leaq 1f(%rip), %rax\n pushq %rax\n movl $0, %ecx\n call *(%rsp,%rcx,8)\n popq %rdx\n ret\n1: movl $36, %eax\n ret\n"
    "ROUTINE r_jmp_rsp\n leaq 1f(%rip), %rax\n pushq %rax\n jmp *(%rsp)\n ud2\n1: popq %rax\n movl $37, %eax\n ret\n"
    "ROUTINE r_jmp_rsp_below\n leaq 1f(%rip), %rax\n movq %rax, -120(%rsp)\n jmp *-120(%rsp)\n ud2\n1: movl $38, %eax\n ret\n"
    "ROUTINE r_call_rsp_register\n movq %rsp, %rdx\n leaq 1f(%rip), %rax\n movq %rax, -64(%rdx)\n call *-64(%rdx)\n ret\n1: movl $39, %eax\n ret\n"
    "ROUTINE r_call_scaled\n leaq r_table(%rip), %rdx\n movl $2, %ecx\n call *-8(%rdx,%rcx,8)\n ret\n"
    "r_callee_a: movl $40, %eax\n ret\nr_callee_b: movl $41, %eax\n ret\n"
    "ROUTINE r_call_self_register\n leaq r_table(%rip), %rcx\n call *(%rcx)\n movl %eax, %edx\n leaq r_table(%rip), %r11\n call *8(%r11)\n addl %edx, %eax\n ret\n"
    /* the stack is somewhere else for a while */
    "ROUTINE r_pivot\n movq %rsp, %r8\n leaq r_other_stack_end(%rip), %rsp\n call r_callee_a\n pushq %rax\n popq %rdx\n call 1f\n addl %edx, %eax\n movq %r8, %rsp\n ret\n1: leaq r_other_stack(%rip), %rax\n cmpq %rax, %rsp\n setae %al\n movzbl %al, %eax\n ret\n"
    "ROUTINE r_xchg_rsp\n leaq r_other_stack_end(%rip), %rdx\n xchgq %rsp, %rdx\n call r_callee_b\n xchgq %rsp, %rdx\n ret\n"
    "ROUTINE r_unaligned_stack\n movq %rsp, %rdx\n subq $13, %rsp\n call r_callee_a\n pushq %rax\n popq %rcx\n movq %rdx, %rsp\n movl %ecx, %eax\n ret\n"
    /* far forms to the same code segment */
    "ROUTINE r_lret\n movl %cs, %edx\n pushq %rdx\n leaq 1f(%rip), %rax\n pushq %rax\n lretq\n ud2\n1: movl $50, %eax\n ret\n"
    "ROUTINE r_lret_imm\n movq %rsp, %r8\n pushq $0\n movl %cs, %edx\n pushq %rdx\n leaq 1f(%rip), %rax\n pushq %rax\n lretq $8\n ud2\n1: subq %rsp, %r8\n leaq 51(%r8), %rax\n ret\n"
    "ROUTINE r_ljmp\n leaq 1f(%rip), %rax\n movq %rax, r_far(%rip)\n movw %cs, r_far+8(%rip)\n rex.w ljmp *r_far(%rip)\n ud2\n1: movl $52, %eax\n ret\n"
    "ROUTINE r_lcall\n leaq 1f(%rip), %rax\n movq %rax, r_far(%rip)\n movw %cs, r_far+8(%rip)\n rex.w lcall *r_far(%rip)\n2: ret\n"
    "1: movq (%rsp), %rax\n leaq 2b(%rip), %rdx\n subq %rdx, %rax\n addq $53, %rax\n lretq\n"
    "ROUTINE r_iret\n movq %rsp, %rdx\n movl %ss, %ecx\n pushq %rcx\n pushq %rdx\n pushfq\n movl %cs, %ecx\n pushq %rcx\n leaq 1f(%rip), %rax\n pushq %rax\n iretq\n ud2\n1: subq %rsp, %rdx\n leaq 54(%rdx), %rax\n ret\n"
    /* prefixes that change nothing */
    "ROUTINE r_rep_ret\n call 1f\n incl %eax\n ret\n1: movl $54, %eax\n repz ret\n"
    "ROUTINE r_bnd\n bnd call 1f\n bnd jmp 2f\n ud2\n1: movl $56, %eax\n bnd ret\n2: ret\n"
    "ROUTINE r_hints\n movl $57, %eax\n cmpl %eax, %eax\n .byte 0x3e\n jz 1f\n ud2\n1: .byte 0x2e\n jnz 2f\n leaq 3f(%rip), %rdx\n notrack jmp *%rdx\n2: ud2\n3: ret\n"
    ".data\n.balign 16\nr_table: .quad r_callee_a, r_callee_b\nr_far: .zero 16\nr_other_stack: .zero 4096\nr_other_stack_end: .zero 64\n.text\n");

#define ROUTINES(X)                                                                                \
    X(r_ret_imm, 0) X(r_ret_imm_zero, 0) X(r_ret_imm_large, 0) X(r_call_pop, 0) X(r_call_read, 0)  \
    X(r_change_return, 21) X(r_skip_inline_data, 22) X(r_drop_return, 23) X(r_push_ret, 24)        \
    X(r_ret_chain, 111) X(r_pop_jump, 25) X(r_push_rsp, 0) X(r_pop_rsp, 0) X(r_pop_mem_rsp, 77)    \
    X(r_pop_mem_rsp8, 78) X(r_push_mem_rsp, 158) X(r_push_imm, 0x12345673) X(r_push16, 0x5678)     \
    X(r_pushf, 1) X(r_enter, 64) X(r_enter_nested, 5) X(r_leave, 31) X(r_call_rsp, 32)             \
    X(r_call_rsp_offset, 33) X(r_call_rsp_below, 34) X(r_call_rsp_overlap, 35)                     \
    X(r_call_rsp_index, 36) X(r_jmp_rsp, 37) X(r_jmp_rsp_below, 38) X(r_call_rsp_register, 39)     \
    X(r_call_scaled, 41) X(r_call_self_register, 81) X(r_pivot, 41)     \
    X(r_xchg_rsp, 41) X(r_unaligned_stack, 40) X(r_lret, 50) X(r_lret_imm, 51) X(r_ljmp, 52)       \
    X(r_lcall, 53) X(r_iret, 54) X(r_rep_ret, 55) X(r_bnd, 56) X(r_hints, 57)
#define DECLARE(name, want) int64_t name(void);
ROUTINES(DECLARE)

/* AMD's processors have no far pointers of 64 bits: with REX.W they read 32. */
static int has_far_pointers(void)
{
    char vendor[12];
    uint32_t eax = 0, ecx = 0;
    __asm__("cpuid" : "+a"(eax), "=b"(*(uint32_t *)vendor), "=d"(*(uint32_t *)(vendor + 4)), "+c"(ecx));
    memcpy(vendor + 8, &ecx, 4);
    return memcmp(vendor, "AuthenticAMD", 12) != 0;
}

int main(void)
{
    int far_pointers = has_far_pointers();
    for (int round = 0; round < 200; round++) {
#define TRY(name, want)                                                                            \
    if (round == 0)                                                                                \
        say(#name);                                                                                \
    if (far_pointers || (name != r_ljmp && name != r_lcall))                                       \
        CHECK_EQ(name(), want, #name);
        ROUTINES(TRY)
        if (check_failures)
            break;
    }
    return done();
}

/* Promise: F7 */
