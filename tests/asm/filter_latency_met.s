# MinLatency 15 is 240 cycles, just what memory takes.
#@ spec: LWP §3.3
#@ record: 4 @load flags=0x7000 data1=240 data2=@word
.include "lwp.inc"
    BLOCK flags=DME, filters=15
    EVENTS
    BEGIN
    START
load:
    mov word(%rip), %eax
    STOP
    FINISH
    .data
    .balign 64
word: .quad 0

/* Promise: W9 */
