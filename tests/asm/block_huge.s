# A ring larger than what is mapped works until a record meets the end.
#@ spec: LWP §3.1, §6.4
#@ tail: 4096
#@ head: 4096
#@ size: 0x0fffffff
#@ log: 11 2 @area+4096 @second
.include "lwp.inc"
    BLOCK size=0x0fffffff, base=area, head=4064, tail=4064
    EVENTS
    BEGIN
    movq $9, skip(%rip)
    HANDLE SIGSEGV, note_fault
    PROTECT area+4096, 0
    START
first:
    lwpins $0, %r15d, %r15d
second:
    lwpins $0, %r15d, %r15d
    STOP
    movl $4096, block+64(%rip)
    FINISH
    .bss
    .balign 4096
area: .skip 8192

/* Promise: W19 */
