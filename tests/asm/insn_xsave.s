# XSAVE component 62: 128 bytes where no other component lies, in XCR0 and in leaf 0Dh.
#@ spec: LWP §1.4, §6.1
#@ head: 0
#@ log: 0x80 0 0 1 1 0 0 1
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    mov %ebx, %ebp
    mov $0xd, %eax
    mov $62, %ecx
    cpuid
    mov %rax, (%rbp)
    mov %rcx, 8(%rbp)
    mov %rdx, 16(%rbp)
    mov %ebx, %r12d                     # where it begins and ends
    lea 128(%rbx), %r13d
    mov $0xd, %eax
    xor %ecx, %ecx
    cpuid
    mov %ecx, %r9d                      # the longest image
    shr $30, %edx
    and $1, %edx
    mov %rdx, 24(%rbp)
    xor %ecx, %ecx
    xgetbv
    mov %eax, %r10d
    shr $30, %edx
    and $1, %edx
    mov %rdx, 32(%rbp)
    mov $2, %r8d
component:                              # of the others none may overlap it
    bt %r8d, %r10d
    jnc 1f
    mov $0xd, %eax
    mov %r8d, %ecx
    cpuid
    add %ebx, %eax
    cmp %r13d, %ebx
    jae 1f
    cmp %r12d, %eax
    jbe 1f
    incq 40(%rbp)
1:  inc %r8d
    cmp $32, %r8d
    jb component
    cmp %r13d, %r9d
    setae %al
    movzx %al, %eax
    mov %rax, 56(%rbp)
    FINISH

/* Promise: W10 */
