# Random bits replace the low bits at each reload, not in the counter that comes with the block. The
# generator is xorshift32 from seed 1, of which the low four bits of the first numbers are 1 and 1.
#@ spec: LWP §3.1
#@ record: 1 @insert data1=37
#@ record: 1 @insert data1=19
#@ record: 1 @insert data1=1
#@ size: 0x40000400
.include "lwp.inc"
    BLOCK flags=VAL, random=4
    EVENTS i1=16, c1=3
    BEGIN
    mov $40, %ecx
    START
insert:
    lwpval $0, %ecx, %r15d
    dec %ecx
    jnz insert
    STOP
    FINISH
