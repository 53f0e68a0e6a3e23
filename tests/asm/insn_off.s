# With LWP off: SLWPCB gives 0, LWPINS clears carry and reads no memory, LWPVAL does nothing at all.
#@ spec: LWP §5.4, §5.5, §5.6
#@ head: 0
#@ log: 0 0 1
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS
    BEGIN
    mov $-1, %eax
    slwpcb %rax
    NOTE %rax
    xor %ecx, %ecx
    stc
    lwpins $0, 0, %r15d
    adc $0, %ecx
    NOTE %rcx
    xor %ecx, %ecx
    stc
    lwpval $0, 0, %r15d
    adc $0, %ecx
    NOTE %rcx
    FINISH
