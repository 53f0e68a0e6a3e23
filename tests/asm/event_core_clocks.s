# The generic machine retires three instructions a cycle; a miss to memory exposes half of 236 cycles, where
# misses are counted too.
#@ spec: LWP §4.2
#@ record: 5 @third
#@ record: 5 @load
#@ record: 5 @load+6
#@ counter: 5 = 0
#@ counter: 4 = 8
.include "lwp.inc"
    BLOCK flags=CNH | DME
    EVENTS i4=9, c4=9
    BEGIN
    START
    nop
third:
    nop
    nop
load:
    mov word(%rip), %eax
    nop
    STOP
    FINISH
    .data
    .balign 64
word: .quad 0
