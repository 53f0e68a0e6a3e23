# Three records of four reach the threshold of 70 bytes, rounded to 64; the signal comes before the next
# instruction, at each record from there on.
#@ spec: LWP §5.7
#@ record: 255 @one
#@ record: 255 @two
#@ record: 255 @three
#@ log: 30 @after_two 30 @after_three
.include "lwp.inc"
    BLOCK flags=INT, threshold=70
    EVENTS
    BEGIN
    HANDLE SIGPWR, note_place
    START
one:
    lwpins $0, %r15d, %r15d
    nop
two:
    lwpins $0, %r15d, %r15d
after_two:
    nop
three:
    lwpins $0, %r15d, %r15d
after_three:
    nop
    STOP
    FINISH
    .globl note_place
note_place:
    mov %rdi, (%rbx)
    mov UCONTEXT_RIP(%rdx), %rax
    mov %rax, 8(%rbx)
    addq $16, 40 + 8 * 11(%rdx)
    ret

/* Promise: W12 */
