# Nobody predicted: neither "mispredicted" nor "predicted" is filtered.
#@ spec: LWP §3.3
#@ record: 3 @jump flags=0x8000 data2=@next
.include "lwp.inc"
    BLOCK flags=BRE, filters=3<<25
    EVENTS
    BEGIN
    START
jump:
    jmp next
next:
    STOP
    FINISH
