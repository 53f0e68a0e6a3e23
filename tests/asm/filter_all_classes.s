# All three classes filtered: nothing counts, so the counter does not move either.
#@ spec: LWP §3.3
#@ head: 0
#@ counter: 3 = 5
.include "lwp.inc"
    BLOCK flags=BRE, filters=7<<27
    EVENTS i3=0, c3=5
    BEGIN
    START
    jne 1f
1:  jmp 2f
2:  call 3f
3:  STOP
    FINISH
