# LWPVAL reads its memory operand only when it records.
#@ spec: LWP §5.6
#@ record: 1 @third data1=0x77
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS i1=5, c1=2
    BEGIN
    START
    lwpval $0, 0, %r15d
    lwpval $0, 8, %r15d
third:
    lwpval $0, word(%rip), %r15d
    STOP
    FINISH
    .data
word: .long 0x77
