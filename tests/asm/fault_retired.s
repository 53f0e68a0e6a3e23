# The record of an ordinary instruction meets a page without rights: the instruction is taken back and
# restarted. The handler stops LWP with its first instruction, repairs, and starts it with its last.
#@ spec: LWP §6.4
#@ record: 2 @adds
#@ counter: 2 = 99
#@ log: 11 2 @ring @adds 41 1
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=100, c2=3
    BEGIN
    HANDLE SIGSEGV, repair
    PROTECT ring, 0, 64
    mov $40, %ecx
    START
    nop
    nop
adds:
    add $1, %ecx
    nop
    STOP
    mov %rcx, (%rbx)
    movq $1, 8(%rbx)
    FINISH
repair:
    llwpcb %r15
    mov %rdi, (%rbx)
    movslq 8(%rsi), %rax
    mov %rax, 8(%rbx)
    mov 16(%rsi), %rax
    mov %rax, 16(%rbx)
    mov UCONTEXT_RIP(%rdx), %rax
    mov %rax, 24(%rbx)
    addq $32, 40 + 8 * 11(%rdx)
    PROTECT ring, 3, 64
    # Three instructions count before the one that is restarted: LLWPCB, RET and MOV of the restorer.
    movl $3, block+140(%rip)
    llwpcb %r14
    ret

/* Promise: W19 */
