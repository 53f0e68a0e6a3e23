# With the predictor: a loop's branch is learnt; NPB leaves the mispredictions, first and last.
#@ spec: LWP §3.3, §4.2
#@ options: --predictor generic
#@ record: 3 @again flags=0xa000 data2=@back x13
#@ record: 3 @again flags=0x2000 data2=@behind
.include "lwp.inc"
    BLOCK flags=BRE, filters=1<<26
    EVENTS
    BEGIN
    START
    mov $40, %ecx
back:
    dec %ecx
again:
    jnz back
behind:
    STOP
    FINISH

/* Promise: W15 */
