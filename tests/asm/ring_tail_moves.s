# The tail is read at every record: software makes room while the profile runs.
#@ spec: LWP §7
#@ head: 32
#@ tail: 96
#@ missed: 1
#@ record: 0 0 x27
#@ record: 255 @one data1=1
#@ record: 255 @three data1=3
#@ record: 255 @four data1=4
.include "lwp.inc"
    BLOCK head=960, tail=0
    EVENTS
    BEGIN
    mov $1, %eax
    mov $2, %ecx
    mov $3, %edx
    mov $4, %esi
    START
one:
    lwpins $0, %eax, %r15d
two:
    lwpins $0, %ecx, %r15d
    movl $96, block+64(%rip)
three:
    lwpins $0, %edx, %r15d
four:
    lwpins $0, %esi, %r15d
    STOP
    FINISH
