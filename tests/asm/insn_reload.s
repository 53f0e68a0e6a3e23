# Loading the active block again flushes it first, so an edit of its counter is lost.
#@ spec: LWP §5.3
#@ head: 0
#@ counter: 2 = 6
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=9, c2=9
    BEGIN
    START
    movl $1, block+140(%rip)
    llwpcb %r14
    STOP
    FINISH
