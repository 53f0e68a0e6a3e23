# NCB: conditional branches do not count.
#@ spec: LWP §3.3
#@ record: 3 @relative flags=0x8000 data2=@function
#@ record: 3 @absolute flags=0x8000 data2=@back
.include "lwp.inc"
    BLOCK flags=BRE, filters=1<<28
    EVENTS
    BEGIN
    START
    jne function
    jrcxz relative
relative:
    call function
back:
    STOP
    FINISH
function:
    test %esp, %esp
absolute:
    ret
