# Time stamps are there if they are asked for, and do not decrease.
#@ spec: LWP §4.1
#@ only: reference
#@ record: 255 @start+5
#@ record: 255 @start+15
#@ log: 1
.include "lwp.inc"
    BLOCK flags=PTSC
    EVENTS
    BEGIN
    START
    lwpins $0, %r15d, %r15d
    nop
    lwpins $0, %r15d, %r15d
    STOP
    xor %eax, %eax
    mov ring+24(%rip), %rcx
    cmp %rcx, ring+56(%rip)
    setae %al
    NOTE %rax
    FINISH
