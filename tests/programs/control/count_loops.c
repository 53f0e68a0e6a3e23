//@ variants: pie static
/* jrcxz, jecxz, loop, loope, loopne: every count that matters, both address sizes, flags as input. */
#include "check.h"

__asm__(".text\n"
        ".macro ROUTINE name\n.globl \\name\n\\name: movq %rdi, %rcx\n xorl %eax, %eax\n.endm\n"
        "ROUTINE l_jrcxz\n jrcxz 1f\n ret\n1: incl %eax\n ret\n"
        "ROUTINE l_jecxz\n jecxz 1f\n ret\n1: incl %eax\n ret\n"
        "ROUTINE l_loop\n1: incq %rax\n cmpq $1000, %rax\n jae 2f\n loop 1b\n2: ret\n"
        "ROUTINE l_loop32\n1: incq %rax\n cmpq $1000, %rax\n jae 2f\n .byte 0x67\n loop 1b\n2: shlq $32, %rax\n addq %rcx, %rax\n ret\n"
        "ROUTINE l_loope\n1: incq %rax\n cmpq %rsi, %rax\n setb %dl\n testb %dl, %dl\n cmpb $1, %dl\n loope 1b\n ret\n"
        "ROUTINE l_loopne\n1: incq %rax\n cmpq %rsi, %rax\n loopne 1b\n ret\n"
        "ROUTINE l_loopne_keeps_flags\n1: stc\n incq %rax\n cmpq %rsi, %rax\n loopne 1b\n setb %al\n sete %dl\n movzbl %al, %eax\n movzbl %dl, %edx\n shll $1, %edx\n orl %edx, %eax\n ret\n"
        "ROUTINE l_nested\n1: pushq %rcx\n movl $10, %ecx\n2: incq %rax\n loop 2b\n popq %rcx\n loop 1b\n ret\n"
        "ROUTINE l_far\n jrcxz 1f\n jmp 2f\n.rept 100\n nop\n.endr\n1: addq $2, %rax\n2: incq %rax\n ret\n"
        "ROUTINE l_self\n xorl %ecx, %ecx\n movb $200, %cl\n1: loop 1b\n movq %rcx, %rax\n ret\n");
typedef uint64_t routine(uint64_t count, uint64_t other);
routine l_jrcxz, l_jecxz, l_loop, l_loop32, l_loope, l_loopne, l_loopne_keeps_flags, l_nested, l_far, l_self;

int main(void)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 100, 0x100000000, 0x100000001, 0xffffffff, 0xffffffff00000000, ~0ull};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            uint64_t c = counts[i];
            CHECK_EQ(l_jrcxz(c, 0), c == 0, "jrcxz of %#lx", c);
            CHECK_EQ(l_jecxz(c, 0), (uint32_t)c == 0, "jecxz of %#lx", c);
            CHECK_EQ(l_loop(c, 0), c - 1 >= 1000 ? 1000 : c, "loop of %#lx", c);
            uint32_t low = c;
            uint64_t rounds = low - 1u >= 999 ? 1000 : low;
            /* The count is 32 bits wide and clears the upper half when it is written. */
            uint64_t left = rounds == 1000 ? (uint32_t)(low - 999) : 0;
            uint64_t got = l_loop32(c, 0);
            CHECK_EQ(got >> 32, rounds, "32-bit loop of %#lx: rounds", c);
            CHECK_EQ((uint32_t)got, left, "32-bit loop of %#lx: rcx", c);
            CHECK_EQ(l_far(c, 0), c == 0 ? 3 : 1, "jrcxz over code, %#lx", c);
        }
    for (uint64_t c = 1; c < 20; c++)
        for (uint64_t stop = 1; stop < 20; stop++) {
            CHECK_EQ(l_loopne(c, stop), c < stop ? c : stop, "loopne of %lu, %lu", c, stop);
            CHECK_EQ(l_loope(c, stop), c < stop ? c : stop, "loope of %lu, %lu", c, stop);
            CHECK_EQ(l_loopne_keeps_flags(c, stop), c < stop ? 1 : 2, "flags of loopne %lu, %lu", c, stop);
        }
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(l_nested(50, 0), 500, "nested loops");
        CHECK_EQ(l_self(0, 0), 0, "a loop that is one instruction");
    }
    return done();
}

/* Promise: F7 */
