# As fault_retired, with an instruction that changes a vector register.
#@ spec: LWP §6.4
#@ record: 2 @adds
#@ log: 5
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=100, c2=2
    BEGIN
    HANDLE SIGSEGV, repair
    PROTECT ring, 0, 64
    mov $2, %eax
    movd %eax, %xmm1
    mov $3, %eax
    movd %eax, %xmm0
    START
    nop
adds:
    paddd %xmm1, %xmm0
    STOP
    movd %xmm0, %eax
    NOTE %rax
    FINISH
repair:
    llwpcb %r15
    PROTECT ring, 3, 64
    movl $3, block+140(%rip)
    llwpcb %r14
    ret

/* Promise: W19 */
