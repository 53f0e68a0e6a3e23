# NAB: indirect branches and returns do not count.
#@ spec: LWP §3.3
#@ record: 3 @relative flags=0x8000 data2=@function
.include "lwp.inc"
    BLOCK flags=BRE, filters=1<<27
    EVENTS
    BEGIN
    START
relative:
    call function
    mov $1f, %eax
    jmp *%rax
1:  STOP
    FINISH
function:
    ret
