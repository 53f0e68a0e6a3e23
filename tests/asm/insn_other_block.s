# Loading another block flushes the first one and leaves it alone afterwards.
#@ spec: LWP §5.3
#@ counter: 2 = 7
#@ head: 0
#@ log: 32 6
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=9, c2=9
    BEGIN
    START
    mov $second, %eax
    llwpcb %rax
    lwpins $0, %r15d, %r15d
    nop
    STOP
    mov second+16(%rip), %eax
    NOTE %rax
    mov second+140(%rip), %eax
    NOTE %rax
    FINISH
    .data
    .balign 8
second:
    .long IRE, 1024
    .quad ring+1024
    .long 0, 0
    .quad 0
    .long 0x100000, 0
    .fill 11, 8, 0
    .long 0, 0, 9, 9
    .fill 8, 8, 0
