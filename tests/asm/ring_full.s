# A ring of 32 slots shows 31 records; the slot at the head is overwritten by each further one.
#@ spec: LWP §5.7
#@ head: 992
#@ missed: 9
#@ record: 255 @insert data1=40
#@ record: 255 @insert data1=39
#@ record: 255 @insert data1=38
#@ record: 255 @insert data1=37
#@ record: 255 @insert data1=36
#@ record: 255 @insert data1=35
#@ record: 255 @insert data1=34
#@ record: 255 @insert data1=33
#@ record: 255 @insert data1=32
#@ record: 255 @insert data1=31
#@ record: 255 @insert data1=30
#@ record: 255 @insert data1=29
#@ record: 255 @insert data1=28
#@ record: 255 @insert data1=27
#@ record: 255 @insert data1=26
#@ record: 255 @insert data1=25
#@ record: 255 @insert data1=24
#@ record: 255 @insert data1=23
#@ record: 255 @insert data1=22
#@ record: 255 @insert data1=21
#@ record: 255 @insert data1=20
#@ record: 255 @insert data1=19
#@ record: 255 @insert data1=18
#@ record: 255 @insert data1=17
#@ record: 255 @insert data1=16
#@ record: 255 @insert data1=15
#@ record: 255 @insert data1=14
#@ record: 255 @insert data1=13
#@ record: 255 @insert data1=12
#@ record: 255 @insert data1=11
#@ record: 255 @insert data1=10
#@ slot: 31 255 @insert data1=1
#@ log: 9
.include "lwp.inc"
    BLOCK
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
