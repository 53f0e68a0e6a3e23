# LWPINS whose record meets a page without rights is restarted after the handler has made the page
# writable; it stores once.
#@ spec: LWP §6.4, §5.5
#@ record: 255 @insert
#@ log: 11 2 @ring @insert
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $0, skip(%rip)
    HANDLE SIGSEGV, repair
    PROTECT ring, 0, 64
    START
insert:
    lwpins $0, %r15d, %r15d
    STOP
    FINISH
repair:
    push %rdi
    push %rsi
    push %rdx
    PROTECT ring, 3, 64
    pop %rdx
    pop %rsi
    pop %rdi
    jmp note_fault

/* Promise: W19 */
