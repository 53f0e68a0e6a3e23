# NRB: direct jumps and calls do not count.
#@ spec: LWP §3.3
#@ record: 3 @absolute flags=0x8000 data2=@back
#@ record: 3 @conditional flags=0x8000 data2=@last
.include "lwp.inc"
    BLOCK flags=BRE, filters=1<<29
    EVENTS
    BEGIN
    START
    jmp 1f
1:  call function
back:
    xor %eax, %eax
conditional:
    je last
last:
    STOP
    FINISH
function:
absolute:
    ret
