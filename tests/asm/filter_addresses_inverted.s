# IPI with IPF: instructions outside the range count.
#@ spec: LWP §3.3
#@ record: 2 @start
#@ record: 2 @behind
.include "lwp.inc"
    BLOCK flags=IRE, filters=3<<30, baseip=low, limitip=high
    EVENTS
    BEGIN
    START
low:
    nop
high:
    nop
behind:
    nop
    STOP
    FINISH
