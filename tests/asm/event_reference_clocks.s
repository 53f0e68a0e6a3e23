# Reference clocks pass at half the rate of the generic machine's core: one for six instructions.
#@ spec: LWP §4.2
#@ record: 6 @sixth
#@ record: 6 @twelfth
.include "lwp.inc"
    BLOCK flags=RNH
    EVENTS
    BEGIN
    START
    nop
    nop
    nop
    nop
sixth:
    nop
    nop
    nop
    nop
    nop
    nop
twelfth:
    nop
    nop
    STOP
    FINISH
