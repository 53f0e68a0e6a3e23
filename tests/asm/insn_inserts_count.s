# LWPINS and LWPVAL retire like any other instruction, recording or not.
#@ spec: LWP §4.2
#@ record: 2 @sample
#@ record: 255 @insert
#@ record: 2 @insert
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=1, c2=1
    BEGIN
    START
sample:
    lwpval $0, %r15d, %r15d
    nop
insert:
    lwpins $0, %r15d, %r15d
    nop
    STOP
    FINISH
