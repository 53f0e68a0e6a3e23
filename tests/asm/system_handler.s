# A handler sees LWP as it is: it runs, and the handler's instructions count.
#@ spec: LWP §6.2
#@ record: 255 @handler
#@ log: @block
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    HANDLE 10, handler
    mov $SYS_GETPID, %eax
    syscall
    mov %eax, %edi
    mov $10, %esi
    START
    mov $SYS_KILL, %eax
    syscall
    STOP
    FINISH
handler:
    lwpins $0, %r15d, %r15d
    slwpcb %rax
    mov %rax, (%rbx)
    ret

/* Promise: W19 */
