# A Bulldozer grants what it has, and writes the flags back.
#@ spec: LWP §3.2, §1.2
#@ cpu: bulldozer
#@ flags: 0x8000000e
#@ head: 0
.include "lwp.inc"
    BLOCK flags=-1
    EVENTS i1=9, c1=9, i2=99, c2=99, i3=99, c3=99
    BEGIN
    START
    nop
    STOP
    FINISH

/* Promise: W19 */
