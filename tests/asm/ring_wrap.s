# The ring begins in its last slot and goes on in its first.
#@ spec: LWP §5.7
#@ head: 64
#@ slot: 31 255 @one data1=1
#@ slot: 0 255 @two data1=2
#@ slot: 1 255 @three data1=3
#@ record: 255 @one data1=1
#@ record: 255 @two data1=2
#@ record: 255 @three data1=3
.include "lwp.inc"
    BLOCK head=992, tail=992
    EVENTS
    BEGIN
    mov $1, %eax
    mov $2, %ecx
    mov $3, %edx
    START
one:
    lwpins $0, %eax, %r15d
two:
    lwpins $0, %ecx, %r15d
three:
    lwpins $0, %edx, %r15d
    STOP
    FINISH
