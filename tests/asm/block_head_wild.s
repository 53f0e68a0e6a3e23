# A head outside the ring becomes 0, one inside a record goes back to its beginning.
#@ spec: LWP §3.2
#@ head: 64
#@ tail: 0
#@ record: 255 @first
#@ record: 255 @second
.include "lwp.inc"
    BLOCK head=0xffffff
    EVENTS
    BEGIN
    START
first:
    lwpins $0, %r15d, %r15d
    llwpcb %r15
    movl $63, block+16(%rip)
    llwpcb %r14
second:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
