# Block or ring outside the canonical addresses: #GP(0). After it LWP is off.
#@ spec: LWP §5.3
#@ head: 0
#@ log: 11 128 0 @first 11 128 0 @second
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $5, skip(%rip)
    HANDLE SIGSEGV, note_fault
    START
    movabs $0x800000000000, %rax
first:
    llwpcb %rax
    mov %rax, block+8(%rip)
second:
    llwpcb %r14
    slwpcb %rax
    test %rax, %rax
    jnz 9f
    FINISH
9:  ud2

/* Promise: W19 */
