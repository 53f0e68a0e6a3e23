# The form of 2007: every third instruction with interval 3; LLWPCB returns the old block in rAX and the
# unit writes the flags. The slot at byte 40 holds interval, EventId in 31:26, and counter.
#@ spec: P07 §4.1, §5.3, §5.4
#@ options: --revision 2007
#@ flags: 0x80000003
#@ record: 1 @third
#@ record: 1 @sixth
#@ log: 0 @block @block 0
.include "lwp.inc"
    BLOCK baseip=1<<26|3|3<<32
    EVENTS
    BEGIN
    mov $-1, %eax
    START
    mov %rax, %r11
third:
    slwpcb %r12
    nop
    nop
sixth:
    nop
    STOP
    mov %rax, %r13
    NOTE %r11
    NOTE %r12
    NOTE %r13
    slwpcb %rax
    NOTE %rax
    FINISH

/* Promise: W11 */
