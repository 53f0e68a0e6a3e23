# The control block of a component cannot be read: XRSTOR faults, and LWP stays as it is.
#@ spec: LWP §6.1, §6.4
#@ record: 255 @last
#@ head: 32
#@ log: 11 1 0x10 @restore 0 @block
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    XSAVE_SETUP
    HANDLE SIGSEGV, note_fault
    movq $(after - restore), skip
    START
    xor %eax, %eax
    mov $1 << 30, %edx
    xsave (%r12)
    movq $0x10, (%r13)
restore:
    xrstor (%r12)
after:
    mov $0, %ecx
    NOTE %rcx
    slwpcb %rcx
    NOTE %rcx
last:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W10, W19 */
