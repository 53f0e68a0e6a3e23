# A new thread starts with LWP off; what it does leaves the first thread's profile alone.
#@ spec: LWP §6.2
#@ record: 255 @after
#@ log: 1
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    START
    mov $56, %eax
    mov $0x10f00, %edi
    mov $stack_end-8192, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    syscall
    test %eax, %eax
    jnz wait
    lwpins $0, %r15d, %r15d
    slwpcb %rax
    test %rax, %rax
    setz %al
    movzx %al, %eax
    mov %rax, log(%rip)
    mov $SYS_EXIT, %eax
    xor %edi, %edi
    syscall
wait:
    pause
    cmpl $0, log(%rip)
    je wait
after:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
