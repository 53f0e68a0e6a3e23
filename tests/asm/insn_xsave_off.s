# With LWP off XSAVE clears its bit in XSTATE_BV and writes zeros; XSAVEOPT leaves the component alone.
#@ spec: LWP §6.1
#@ log: 0 0 0 0 0xffffffffffffffff
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    XSAVE_SETUP
    START
    STOP
    mov $1 << 30, %edx
    movb $0x40, 519(%r12)
    movq $-1, (%r13)
    movq $-1, 120(%r13)
    xor %eax, %eax
    xsave (%r12)
    NOTE_HELD
    NOTE_AT 0
    NOTE_AT 120
    movb $0x40, 519(%r12)
    movq $-1, (%r13)
    xor %eax, %eax
    xsaveopt (%r12)
    NOTE_HELD
    NOTE_AT 0
    FINISH

/* Promise: W10 */
