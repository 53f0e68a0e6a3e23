# IPF: instructions from BaseIP to LimitIP count, both included.
#@ spec: LWP §3.3
#@ record: 2 @low
#@ record: 2 @high
.include "lwp.inc"
    BLOCK flags=IRE, filters=1<<31, baseip=low, limitip=high
    EVENTS
    BEGIN
    START
    nop
low:
    nop
high:
    nop
    nop
    STOP
    FINISH
