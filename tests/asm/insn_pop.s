# 8F is POP where the map number is below 8.
#@ spec: LWP §5.1
#@ head: 0
#@ log: 0x1234
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    START
    push $0x1234
    .byte 0x8f,0xc0
    STOP
    NOTE %rax
    FINISH
