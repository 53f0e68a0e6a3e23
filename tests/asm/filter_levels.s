# CLF with RAM counts what memory served; CLF with NBC would not.
#@ spec: LWP §3.3
#@ record: 4 @load flags=0x7000 data1=240 data2=@word
.include "lwp.inc"
    BLOCK flags=DME, filters=1<<8|1<<11
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
