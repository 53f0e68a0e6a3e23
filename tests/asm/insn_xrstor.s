# XRSTOR brings a profile back: head and counters from the image, the rest from the control block. It retires
# with LWP on. What was recorded between save and restore is recorded over.
#@ spec: LWP §6.1, §6.2
#@ record: 255 @first flags=1
#@ record: 2 @due
#@ record: 255 @third flags=3
#@ head: 96
#@ counter: 2 = 6
#@ log: @block 0x7777
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=9, c2=9
    BEGIN
    XSAVE_SETUP
    mov $0x7777, %eax
    movd %eax, %xmm3
    mov $1 << 30, %edx
    mov $7, %eax
    START                               # 8
first:
    lwpins $1, %r15d, %r15d             # 7
    xsave (%r12)                        # 6; saved: 7
    lwpins $2, %r15d, %r15d
    STOP
    lwpins $4, %r15d, %r15d             # off: nothing
    pxor %xmm3, %xmm3
    xrstor (%r12)                       # 7, then 6
    slwpcb %rcx                         # 5
    mov %rcx, (%rbx)                    # 4
    movd %xmm3, %eax                    # 3
    mov %rax, 8(%rbx)                   # 2
    nop                                 # 1
    nop                                 # 0
due:
    nop                                 # expires: 9
third:
    lwpins $3, %r15d, %r15d             # 8
    nop                                 # 7
    nop                                 # 6
    llwpcb %r15
    FINISH

/* Promise: W10 */
