# Three instructions a cycle; where no misses are counted, memory takes no time.
#@ spec: LWP §4.2
#@ record: 5 @third
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
