# Rings of no byte, below the minimum, or rounded down below it, raise #GP(0): SIGSEGV without address.
#@ spec: LWP §3.2, §5.3
#@ head: 0
#@ size: 1055
#@ log: 11 128 0 @load 11 128 0 @load
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $5, skip(%rip)
    HANDLE SIGSEGV, note_fault
    movl $0, block+4(%rip)
    call load
    movl $1023, block+4(%rip)
    call load
    movl $1055, block+4(%rip)
    call load
    slwpcb %rax
    cmp %r14, %rax
    jne 9f
    FINISH
9:  ud2
load:
    llwpcb %r14
    ret

/* Promise: W19 */
