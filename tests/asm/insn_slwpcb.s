# SLWPCB gives the address of the block, 32 bits of it zero-extended, and publishes counters.
#@ spec: LWP §5.4
#@ log: @block @block 6
#@ head: 0
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=9, c2=9
    BEGIN
    movabs $-1, %rax
    movabs $-1, %rcx
    START
    nop
    slwpcb %rax
    slwpcb %ecx
    mov block+140(%rip), %edx
    STOP
    NOTE %rax
    NOTE %rcx
    NOTE %rdx
    FINISH
