# Continuous mode: the head passes the tail, nothing is missed, carry stays clear.
#@ spec: LWP §5.7
#@ head: 256
#@ flags: 0x20000000
#@ record: 255 @insert data1=8
#@ record: 255 @insert data1=7
#@ record: 255 @insert data1=6
#@ record: 255 @insert data1=5
#@ record: 255 @insert data1=4
#@ record: 255 @insert data1=3
#@ record: 255 @insert data1=2
#@ record: 255 @insert data1=1
#@ slot: 8 255 @insert data1=32
#@ slot: 31 255 @insert data1=9
#@ log: 0
.include "lwp.inc"
    BLOCK flags=CONT
    EVENTS
    BEGIN
    mov $40, %ecx
    xor %r12d, %r12d
    START
insert:
    lwpins $0, %ecx, %r15d
    adc $0, %r12d
    dec %ecx
    jnz insert
    NOTE %r12
    STOP
    FINISH
