# Two events on one instruction both record, by ascending EventId; LWPINS comes before what its own
# retirement records.
#@ spec: LWP §4.3
#@ record: 2 @start
#@ record: 2 @jump
#@ record: 3 @jump flags=0x8000 data2=@insert
#@ record: 255 @insert
#@ record: 2 @insert
.include "lwp.inc"
    BLOCK flags=IRE|BRE
    EVENTS
    BEGIN
    START
jump:
    jmp insert
insert:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH
