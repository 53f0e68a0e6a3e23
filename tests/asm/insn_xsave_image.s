# What XSAVE writes of LWP: address, granted flags, head, ring, size with Random, filters and counters as they
# are in the unit, of which it flushes nothing. Its own retirement counts after that.
#@ spec: LWP §6.1
#@ record: 255 @first
#@ flags: 4
#@ counter: 2 = 199995
#@ log: @block 0x2000000004 @ring 0x8000000020000400 199996 199999 1
.include "lwp.inc"
    BLOCK flags=IRE | 1 << 20, random=2, filters=1 << 31, limitip=-1
    EVENTS i2=200000, c2=199999
    BEGIN
    XSAVE_SETUP
    START                               # retires with LWP on: 199998 are left
first:
    lwpins $0, %r15d, %r15d
    mov $1 << 30, %edx                  # 199996
    xsave (%r12)
    STOP
    NOTE_AT 0
    NOTE_AT 8
    NOTE_AT 16
    NOTE_AT 24
    mov 68(%r13), %eax
    NOTE %rax
    mov $199999, %eax
    NOTE %rax
    NOTE_HELD
    FINISH

/* Promise: W10 */
