# XSAVE component 62: 128 bytes at 340h, in XCR0 and in leaf 0Dh.
#@ spec: LWP §1.4, §6.1
#@ only: reference
#@ head: 0
#@ log: 0x80 0x340 0 1 1
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    mov %ebx, %ebp
    mov $0xd, %eax
    mov $62, %ecx
    cpuid
    mov %rax, (%rbp)
    mov %rbx, 8(%rbp)
    mov %rcx, 16(%rbp)
    mov $0xd, %eax
    xor %ecx, %ecx
    cpuid
    shr $30, %edx
    and $1, %edx
    mov %rdx, 24(%rbp)
    xor %ecx, %ecx
    xgetbv
    shr $30, %edx
    and $1, %edx
    mov %rdx, 32(%rbp)
    FINISH
