# fork: the child starts with LWP off, the parent's goes on.
#@ spec: LWP §6.2
#@ record: 255 @parent
#@ log: 0
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    START
    mov $57, %eax
    syscall
    test %eax, %eax
    jnz parent_waits
    slwpcb %rdi
    test %rdi, %rdi
    setnz %dil
    movzx %dil, %edi
    mov $SYS_EXIT, %eax
    syscall
parent_waits:
    mov %eax, %edi
    mov $log, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    mov $61, %eax
    syscall
parent:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
