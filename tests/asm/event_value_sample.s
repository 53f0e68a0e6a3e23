# Every third LWPVAL, with registers and with memory; the counter that comes with the block is used first.
#@ spec: LWP §5.6, §3.1
#@ record: 1 @second flags=0x2222 data1=22 data2=0x12345678
#@ record: 1 @fifth flags=0x5555 data1=0xcafe data2=0xfedcba9812345678
#@ counter: 1 = 1
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS i1=2, c1=1
    BEGIN
    movabs $0xfedcba9812345678, %rsi
    mov $22, %ecx
    START
    lwpval $0x1111, %ecx, %esi
second:
    lwpval $0x12222, %ecx, %esi
    lwpval $0x3333, %ecx, %esi
    lwpval $0x4444, %ecx, %esi
fifth:
    lwpval $0x5555, word(%rip), %rsi
    lwpval $0x6666, %ecx, %esi
    STOP
    FINISH
    .data
    .long 0
word: .long 0xcafe
