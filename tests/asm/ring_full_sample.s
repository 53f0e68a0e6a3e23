# A value sample that meets a full ring is missed, and its counter is reloaded all the same.
#@ spec: LWP §5.6, §5.7
#@ head: 0
#@ tail: 32
#@ missed: 2
#@ counter: 1 = 0
#@ record: 0 0 x31
#@ slot: 0 1 @insert data1=3
.include "lwp.inc"
    BLOCK flags=VAL, head=0, tail=32
    EVENTS i1=2, c1=0
    BEGIN
    mov $6, %ecx
    START
insert:
    lwpval $0, %ecx, %r15d
    dec %ecx
    jnz insert
    STOP
    FINISH
