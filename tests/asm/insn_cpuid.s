# The leaf of a full processor, and the presence bit.
#@ spec: LWP §1.1, §1.2, §1.3
#@ only: reference
#@ head: 0
#@ log: 0xe000007f 0x80062016 0xf0010330 0xe000007f 1
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    mov %ebx, %ebp
    mov $0x8000001c, %eax
    xor %ecx, %ecx
    cpuid
    mov %rax, (%rbp)
    mov %rbx, 8(%rbp)
    mov %rcx, 16(%rbp)
    mov %rdx, 24(%rbp)
    mov $0x80000001, %eax
    cpuid
    shr $15, %ecx
    and $1, %ecx
    mov %rcx, 32(%rbp)
    FINISH
