# A record that is missed does not interrupt; the one that fills the ring does.
#@ spec: LWP §5.7
#@ missed: 1
#@ head: 992
#@ record: 0 0 x30
#@ record: 255 @one
#@ log: 30 @after_one
.include "lwp.inc"
    BLOCK flags=INT, threshold=32, head=960, tail=0
    EVENTS
    BEGIN
    HANDLE SIGPWR, note_place
    START
one:
    lwpins $0, %r15d, %r15d
after_one:
    nop
    lwpins $0, %r15d, %r15d
    nop
    STOP
    FINISH
note_place:
    mov %rdi, (%rbx)
    mov UCONTEXT_RIP(%rdx), %rax
    mov %rax, 8(%rbx)
    addq $16, 40 + 8 * 11(%rdx)
    ret

/* Promise: W12 */
