# LWPVAL whose record meets a page without rights is restarted after the handler has made the page
# writable; it counts once.
#@ spec: LWP §6.4, §5.6
#@ record: 1 @insert data1=5
#@ counter: 1 = 3
#@ log: 11 2 @ring @insert
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS i1=3, c1=0
    BEGIN
    movq $0, skip(%rip)
    HANDLE SIGSEGV, repair
    PROTECT ring, 0, 64
    mov $5, %ecx
    START
insert:
    lwpval $0, %ecx, %r15d
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
