# The address filter touches neither LWPINS nor LWPVAL.
#@ spec: LWP §3.3
#@ record: 255 @insert
#@ record: 1 @sample
.include "lwp.inc"
    BLOCK flags=VAL|IRE, filters=1<<31, baseip=1, limitip=2
    EVENTS
    BEGIN
    START
insert:
    lwpins $0, %r15d, %r15d
sample:
    lwpval $0, %r15d, %r15d
    STOP
    FINISH
