# The loads of a REP string instruction are counted one by one; the record names the one that expired.
#@ spec: LWP §4.2
#@ record: 4 @moves flags=0x7000 data1=240 data2=@from+64
#@ counter: 4 = 1
.include "lwp.inc"
    BLOCK flags=DME
    EVENTS i4=2, c4=1
    BEGIN
    mov $24, %ecx
    mov $from, %esi
    mov $to, %edi
    START
moves:
    rep movsq
    mov from+640(%rip), %eax
    STOP
    FINISH
    .bss
    .balign 4096
from: .skip 4096
to: .skip 4096

/* Promise: W9 */
