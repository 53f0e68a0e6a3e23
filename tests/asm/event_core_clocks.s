# The generic machine retires three instructions a cycle; a miss to memory exposes half of 236 cycles.
#@ spec: LWP §4.2
#@ only: reference
#@ record: 5 @third
#@ record: 5 @load
#@ record: 5 @load+6
#@ counter: 5 = 0
.include "lwp.inc"
    BLOCK flags=CNH
    EVENTS
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
