# Every third instruction; LLWPCB itself is the first, a system call is none.
#@ spec: LWP §4.2
#@ record: 2 @third
#@ record: 2 @sixth
#@ counter: 2 = 1
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=2, c2=2
    BEGIN
    mov $SYS_GETPID, %eax
    START
    nop
third:
    nop
    syscall
    nop
    nop
sixth:
    nop
    nop
    STOP
    FINISH
