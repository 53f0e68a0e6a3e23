# A block needs no alignment.
#@ spec: LWP §5.3
#@ head: 0
#@ log: @inner 32 1
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    mov $inner, %eax
    llwpcb %rax
    lwpins $0, %r15d, %r15d
    slwpcb %rcx
    STOP
    NOTE %rcx
    mov inner+16(%rip), %eax
    NOTE %rax
    movzbl ring+1024+7(%rip), %eax
    shr $7, %eax
    NOTE %rax
    FINISH
    .data
    .byte 0, 0, 0
inner:
    .long 0, 1024
    .quad ring+1024+7
    .long 0, 0
    .quad 0
    .long 0x100000, 0
    .fill 11, 8, 0
    .fill 8, 8, 0

/* Promise: W19 */
