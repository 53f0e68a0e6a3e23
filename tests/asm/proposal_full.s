# The form of 2007: LWPINS and LWPVAL are not there, the ring fills as in the shipped form, and the
# threshold interrupts once, at equality.
#@ spec: P07 §5.4, §3
#@ options: --revision 2007
#@ flags: 0x80000003
#@ missed: 9
#@ head: 224
#@ size: 256
#@ record: 1 @nops
#@ record: 1 @nops+1
#@ record: 1 @nops+2
#@ record: 1 @nops+3
#@ record: 1 @nops+4
#@ record: 1 @nops+5
#@ record: 1 @nops+6
#@ slot: 7 1 @nops+15
.include "lwp.inc"
    BLOCK flags=INT, size=256, baseip=1<<26|1|2<<32
    EVENTS
    BEGIN
    START
nops:
    .fill 16, 1, 0x90
    STOP
    FINISH

/* Promise: W11 */
