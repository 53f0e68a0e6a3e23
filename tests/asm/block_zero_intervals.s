# Interval 0 on the first three events: every occurrence of each records.
#@ spec: LWP §3.1, §4.3
#@ record: 2 @start
#@ record: 1 @sample
#@ record: 2 @sample
#@ record: 2 @jump
#@ record: 3 @jump flags=0x8000 data2=@last
#@ record: 2 @last
.include "lwp.inc"
    BLOCK flags=VAL|IRE|BRE
    EVENTS
    BEGIN
    START
sample:
    lwpval $0, %r15d, %r15d
jump:
    jmp last
last:
    nop
    STOP
    FINISH

/* Promise: W19 */
