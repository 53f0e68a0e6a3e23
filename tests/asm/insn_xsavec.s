# XSAVEC packs the component behind what else is requested, and XRSTOR finds it there. Where the processor has no
# XSAVEC, XSAVE takes its place, and what its image has elsewhere is noted as if.
#@ spec: LWP §6.1
#@ record: 255 @first
#@ record: 255 @second
#@ head: 64
#@ log: 0xc000000000000001 0x4000000000000000 @block 0x20 @block
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    XSAVE_SETUP
    mov $0xd, %eax
    mov $1, %ecx
    cpuid
    mov %ebp, %ebx
    mov %eax, %r9d
    mov $1, %eax
    mov $1 << 30, %edx
    START
first:
    lwpins $0, %r15d, %r15d
    test $2, %r9d
    jz 1f
    lea 576(%r12), %r13
    xsavec (%r12)
    mov 520(%r12), %rcx
    jmp 2f
1:  xsave (%r12)
    mov $0xc000000000000001, %rcx
2:  STOP
    NOTE %rcx
    mov 512(%r12), %rcx
    and $~1, %rcx
    NOTE %rcx
    NOTE_AT 0
    mov 12(%r13), %ecx
    NOTE %rcx
    mov $1, %eax
    xrstor (%r12)
second:
    lwpins $0, %r15d, %r15d
    slwpcb %rcx
    NOTE %rcx
    FINISH

/* Promise: W10 */
