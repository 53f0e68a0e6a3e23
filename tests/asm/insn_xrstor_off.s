# XRSTOR of an image without the component turns LWP off, flushes nothing and does not count; without the bit in
# its mask it leaves LWP as it is, also where the image has the component, which may then be anything.
#@ spec: LWP §6.1
#@ record: 255 @first
#@ record: 255 @second
#@ head: 64
#@ counter: 2 = 13
#@ log: @block @block 0
.include "lwp.inc"
    BLOCK flags=IRE
    EVENTS i2=100, c2=30
    BEGIN
    XSAVE_SETUP
    xor %eax, %eax
    xor %edx, %edx
    START                               # 29
    xrstor (%r12)                       # 28: nothing requested
first:
    lwpins $0, %r15d, %r15d             # 27
    mov $1 << 30, %edx                  # 26
    xsave (%r12)                        # 25
    movq $1, (%r13)                     # 24
    xor %edx, %edx                      # 23
    xrstor (%r12)                       # 22: the component is held and not requested
second:
    lwpins $0, %r15d, %r15d             # 21
    slwpcb %rcx                         # 20
    NOTE %rcx                           # 18
    slwpcb %rcx                         # 17
    NOTE %rcx                           # 15
    movb $0, 519(%r12)                  # 14
    mov $1 << 30, %edx                  # 13
    slwpcb %rcx
    xrstor (%r12)
    lwpins $0, %r15d, %r15d
    slwpcb %rcx
    NOTE %rcx
    FINISH

/* Promise: W10 */
