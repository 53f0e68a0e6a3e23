# A profile moves: the component that one image holds is restored behind a system call and a signal handler that
# turned LWP off; the signal's frame has nothing of LWP.
#@ spec: LWP §6.1, §6.2
#@ record: 255 @handler
#@ record: 255 @last
#@ head: 64
#@ log: 0 @block
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    XSAVE_SETUP
    HANDLE 10, handler
    mov $SYS_GETPID, %eax
    syscall
    mov %eax, %edi
    mov $10, %esi
    START
    mov $SYS_KILL, %eax
    syscall
    slwpcb %rcx
    NOTE %rcx
    xor %eax, %eax
    mov $1 << 30, %edx
    xrstor (%r12)
    slwpcb %rcx
    NOTE %rcx
last:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH
handler:
    lwpins $0, %r15d, %r15d
    xor %eax, %eax
    mov $1 << 30, %edx
    xsave (%r12)
    llwpcb %r15
    ret

/* Promise: W10, W19 */
