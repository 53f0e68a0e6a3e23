# LLWPCB with a 32-bit register ignores the upper half.
#@ spec: LWP §5.3
#@ record: 255 @insert
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movabs $0x1234567800000000, %rax
    or %r14, %rax
    .globl start
start:
    llwpcb %eax
insert:
    lwpins $0, %r15d, %r15d
    movabs $0x1234567800000000, %rax
    llwpcb %eax
    lwpins $0, %r15d, %r15d
    FINISH
