# LWPINS reads its operand before it records: a fault there stores nothing.
#@ spec: LWP §5.5, §6.4
#@ head: 0
#@ log: 11 1 0x10 @insert
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $10, skip(%rip)
    HANDLE SIGSEGV, note_fault
    START
insert:
    lwpins $0, 0x10(%r15), %r15d
    STOP
    FINISH

/* Promise: W19 */
