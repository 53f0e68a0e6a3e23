# Without INT the threshold is nothing.
#@ spec: LWP §5.7
#@ record: 255 @start+5
.include "lwp.inc"
    BLOCK threshold=0
    EVENTS
    BEGIN
    START
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W12 */
