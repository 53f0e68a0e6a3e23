# A ring over code, which cannot be written: the record faults.
#@ spec: LWP §6.4
#@ head: 0
#@ log: 11 2 @_start @insert
.include "lwp.inc"
    BLOCK base=_start
    EVENTS
    BEGIN
    movq $9, skip(%rip)
    HANDLE SIGSEGV, note_fault
    START
insert:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
