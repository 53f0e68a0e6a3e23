# A Bulldozer has no address filter; its bits are ignored.
#@ spec: LWP §3.3
#@ cpu: bulldozer
#@ record: 2 @start
#@ record: 2 @start+5
.include "lwp.inc"
    BLOCK flags=IRE, filters=1<<31, baseip=1, limitip=2
    EVENTS
    BEGIN
    START
    nop
    STOP
    FINISH
