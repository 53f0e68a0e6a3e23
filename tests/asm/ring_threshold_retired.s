# The record of an ordinary instruction interrupts behind it. Threshold 0 interrupts at every record.
#@ spec: LWP §5.7
#@ record: 3 @one flags=0x8000 data2=@landed
#@ log: 30 @landed
.include "lwp.inc"
    BLOCK flags=BRE|INT, threshold=0
    EVENTS i3=5, c3=0
    BEGIN
    HANDLE SIGPWR, note_place
    START
one:
    jmp landed
    nop
landed:
    mov $1, %eax
    STOP
    FINISH
note_place:
    llwpcb %r15
    mov %rdi, (%rbx)
    mov UCONTEXT_RIP(%rdx), %rax
    mov %rax, 8(%rbx)
    addq $16, 40 + 8 * 11(%rdx)
    ret

/* Promise: W12 */
