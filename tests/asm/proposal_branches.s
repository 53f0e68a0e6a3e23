# The form of 2007: NDB leaves direct jumps out; calls, returns and conditional branches count.
#@ spec: P07 §4.2, §5.4
#@ options: --revision 2007
#@ flags: 0x80000005
#@ record: 2 @conditional flags=0x8000 data2=@landed
#@ record: 2 @calls flags=0x8000 data2=@function
#@ record: 2 @function flags=0x8000 data2=@back
.include "lwp.inc"
    BLOCK filters=1<<13, baseip=2<<26|1|1<<32
    EVENTS
    BEGIN
    START
    xor %eax, %eax
conditional:
    je landed
    nop
landed:
    jmp calls
    nop
calls:
    call function
back:
    STOP
    FINISH
function:
    ret

/* Promise: W11 */
