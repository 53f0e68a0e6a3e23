# System calls count for no event; what is around them does.
#@ spec: LWP §4.2
#@ record: 2 @before
#@ record: 2 @behind
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=1, c2=1
    BEGIN
    START
before:
    mov $SYS_GETPID, %eax
    syscall
    nop
behind:
    nop
    STOP
    FINISH

/* Promise: W19 */
