# A tail outside the ring stands for 0, one inside a record for its beginning.
#@ spec: LWP §3.2
#@ head: 992
#@ missed: 1
#@ tail: 5
#@ record: 0 0 x30
#@ record: 255 @one data1=1
#@ slot: 31 255 @two data1=2
.include "lwp.inc"
    BLOCK head=960, tail=0xfffffff0
    EVENTS
    BEGIN
    mov $1, %eax
    mov $2, %ecx
    START
one:
    lwpins $0, %eax, %r15d
    movl $5, block+64(%rip)
two:
    lwpins $0, %ecx, %r15d
    STOP
    FINISH
