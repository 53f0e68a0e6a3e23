# A negative interval is the smallest, 0; a negative counter is 0.
#@ spec: LWP §3.2
#@ record: 1 @start+5 x1
#@ record: 1 @start+14
#@ counter: 1 = 0
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS i1=0x2000000, c1=0x3ffffff
    BEGIN
    START
    lwpval $0, %r15d, %r15d
    lwpval $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
