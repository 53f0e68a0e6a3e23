# A REP string instruction is one instruction however often it repeats, also if not at all.
#@ spec: LWP §4.2
#@ record: 2 @moves
#@ record: 2 @scans
#@ counter: 2 = 1
#@ log: 97 98
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=3, c2=4
    BEGIN
    START
    mov $100, %ecx
    mov $log+64, %esi
    mov $log+64+4096, %edi
moves:
    rep movsb
    xor %ecx, %ecx
    rep stosq
    mov $100, %ecx
scans:
    repe scasb
    nop
    nop
    STOP
    movq $97, (%rbx)
    movq $98, 8(%rbx)
    FINISH
