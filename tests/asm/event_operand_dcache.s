# The memory operand of LWPINS is a load like any other; that of LWPVAL is one when it is read. Block and
# ring are not: the unit's own traffic does not count.
#@ spec: LWP §4.2
#@ record: 255 @insert data1=7
#@ record: 4 @insert flags=0x7000 data1=240 data2=@word
#@ record: 1 @sample data1=9
#@ record: 4 @sample flags=0x7000 data1=240 data2=@word+64
.include "lwp.inc"
    BLOCK flags=VAL|DME
    EVENTS i1=0, c1=1
    BEGIN
    START
insert:
    lwpins $0, word(%rip), %r15d
    lwpval $0, word+128(%rip), %r15d
sample:
    lwpval $0, word+64(%rip), %r15d
    STOP
    FINISH
    .data
    .balign 64
word:
    .long 7
    .balign 64
    .long 9
    .balign 64
    .quad 0

/* Promise: W9 */
