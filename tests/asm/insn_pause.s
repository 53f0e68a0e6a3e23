# Pause and resume: counters are kept in the block between. LLWPCB 0 does not count, LLWPCB does.
#@ spec: LWP §5.3, §7
#@ record: 2 @fifth
#@ counter: 2 = 4
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=4, c2=4
    BEGIN
    START
    nop
    nop
    slwpcb %r13
    llwpcb %r15
    nop
    nop
    nop
fifth:
    llwpcb %r13
    STOP
    FINISH
