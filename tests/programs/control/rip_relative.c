//@ variants: pie no-pie static static-pie
//@ cflags: -O1 -msse4.1
/* rip-relative operands of every kind: loads, stores, read-modify-write, immediates behind the
 * displacement, locked, vector, x87, compare, call, push, prefetch, lea, far ends of a large program. */
#include "check.h"

__asm__(".text\n.globl rip_all\nrip_all: pushq %rbx\n xorl %eax, %eax\n xorl %r10d, %r10d\n"
        " movq v_a(%rip), %rax\n"
        " addq v_a(%rip), %rax\n"
        " movl $5, v_b(%rip)\n"           /* 4-byte immediate behind the displacement */
        " addl $0x1000, v_b(%rip)\n"
        " addl $1, v_b(%rip)\n"           /* 1-byte immediate */
        " movw $7, v_c(%rip)\n"           /* 2-byte immediate */
        " movb $9, v_d(%rip)\n"
        " cmpb $9, v_d(%rip)\n jne 9f\n"
        " cmpl $0x1006, v_b(%rip)\n jne 9f\n"
        " testl $0x1000, v_b(%rip)\n jz 9f\n"
        " lock xaddq %rax, v_e(%rip)\n"
        " lock btsl $4, v_f(%rip)\n"
        " shlq $3, v_g(%rip)\n"
        " shldq $4, %rax, v_g(%rip)\n"
        " imulq $3, v_a(%rip), %rdx\n"
        " imulq $300000, v_a(%rip), %rcx\n"
        " movzbl v_d(%rip), %ebx\n"
        " movsbq v_d(%rip), %rbx\n"
        " xchgq %rbx, v_h(%rip)\n"
        " cmpxchgq %rcx, v_h(%rip)\n"
        " pushq v_a(%rip)\n popq v_i(%rip)\n"
        " incq v_i(%rip)\n notq v_i(%rip)\n negq v_i(%rip)\n"
        " movdqa v_x(%rip), %xmm1\n paddq v_x(%rip), %xmm1\n pshufd $0x1b, v_x(%rip), %xmm2\n movdqa %xmm1, v_y(%rip)\n"
        " pinsrd $1, v_b(%rip), %xmm2\n movdqa %xmm2, v_z(%rip)\n"
        " fldl v_p(%rip)\n fmull v_p(%rip)\n fistpll v_q(%rip)\n"
        " cvtsi2sdq v_a(%rip), %xmm3\n mulsd v_p(%rip), %xmm3\n movsd %xmm3, v_r(%rip)\n"
        " prefetcht0 v_a(%rip)\n clflush v_a(%rip)\n"
        " call *v_t(%rip)\n"
        " cmovzq v_a(%rip), %rbx\n setz v_d(%rip)\n"
        " bsfq v_a(%rip), %r8\n popcntq v_a(%rip), %r9\n crc32q v_a(%rip), %r10\n"
        " movl v_a(%rip), %r11d\n leaq v_a(%rip), %rdi\n leaq v_a(%rip), %rsi\n subq %rsi, %rdi\n"
        " mulq v_a(%rip)\n addq %rdx, %rax\n addq %r8, %rax\n addq %r9, %rax\n addq %r10, %rax\n addq %r11, %rax\n addq %rdi, %rax\n"
        " divl v_divisor(%rip)\n"
        " leal v_a(%rip), %edx\n"         /* truncated to 32 bits */
        " leaq v_a(%rip), %rcx\n subl %ecx, %edx\n addq %rdx, %rax\n"
        " popq %rbx\n ret\n9: ud2\n"
        "v_routine: ret\n"
        ".globl rip_reset\n"
        ".data\n.balign 16\n.globl v_first, v_last\nv_first:\n"
        "v_x: .quad 0x1111111122222222, 0x3333333344444444\nv_y: .quad 0, 0\nv_z: .quad 0, 0\n"
        "v_a: .quad 0x123456789\nv_b: .long 0\nv_c: .word 0\nv_d: .byte 0, 0\nv_e: .quad 0x55\nv_f: .long 0, 0\n"
        "v_g: .quad 0x77\nv_h: .quad 0x88\nv_i: .quad 0\nv_p: .double 1.5\nv_q: .quad 0\nv_r: .quad 0\nv_divisor: .long 0x7fffffff, 0\n"
        "v_last: v_t: .quad v_routine\n.text\n");
uint64_t rip_all(void);
extern unsigned char v_first[], v_last[];

/* Data far away from the code within one module. */
static char far_away[900 << 20];
__attribute__((noinline)) static char *far_end(void) { return &far_away[sizeof far_away - 1]; }

int main(void)
{
    uint64_t sum = 0;
    for (int round = 0; round < 50; round++) {
        uint64_t result = rip_all() & 0xffffffff;
        sum = sum * 31 + result;
        for (unsigned char *p = v_first; p < v_last; p++)
            sum = sum * 31 + *p;
    }
    say("sum %016lx", sum);
    far_away[0] = 3;
    *far_end() = 4;
    CHECK_EQ(far_away[sizeof far_away - 1] + far_away[0], 7, "data at both ends of 900 MiB");
    CHECK_EQ(far_end() - far_away, sizeof far_away - 1, "its size");
    /* gcc's own addressing: string literals, switch tables, static variables, function addresses. */
    static int counter;
    for (int i = 0; i < 100; i++)
        counter += i;
    CHECK_EQ(counter, 4950, "static variable");
    int (*volatile indirect)(const char *, const char *) = strcmp;
    CHECK_EQ(indirect("literal", "literal"), 0, "string literals");
    return done();
}

/* Promise: F7 */
