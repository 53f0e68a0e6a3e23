# An instruction that faults by itself does not retire and does not count; restarted, it counts once.
#@ spec: LWP §4.2
#@ record: 2 @loads
#@ log: 11 2 @page @loads
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=1000, c2=3
    BEGIN
    HANDLE SIGSEGV, repair
    PROTECT page, 0
    START
    nop
loads:
    mov page(%rip), %eax
    STOP
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
    PROTECT page, 3
    # Of the counter, 1 is left: LLWPCB 0 did not count. LLWPCB, RET and MOV follow.
    addl $2, block+140(%rip)
    llwpcb %r14
    ret
    .bss
    .balign 4096
page: .skip 4096

/* Promise: W19 */
