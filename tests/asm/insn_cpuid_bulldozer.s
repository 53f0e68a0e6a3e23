# The leaf of a bulldozer.
#@ spec: LWP §1.1, §1.2, §1.3
#@ head: 0
#@ log: 0x8000000f 0x80032013 0x00010200 0x8000000f 1
#@ cpu: bulldozer
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
