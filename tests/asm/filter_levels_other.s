# CLF with NBC: a miss served by memory does not count.
#@ spec: LWP §3.3
#@ head: 0
.include "lwp.inc"
    BLOCK flags=DME, filters=1<<8|1<<9
    EVENTS
    BEGIN
    START
    mov word(%rip), %eax
    STOP
    FINISH
    .data
    .balign 64
word: .quad 0

/* Promise: W9 */
