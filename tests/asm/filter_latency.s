# MinLatency 16 is 256 cycles, more than the generic machine ever takes; nothing counts.
#@ spec: LWP §3.3
#@ head: 0
#@ counter: 4 = 3
.include "lwp.inc"
    BLOCK flags=DME, filters=16
    EVENTS i4=0, c4=3
    BEGIN
    START
    mov word(%rip), %eax
    STOP
    FINISH
    .data
    .balign 64
word: .quad 0

/* Promise: W9 */
