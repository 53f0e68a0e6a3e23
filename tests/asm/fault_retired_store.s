# As fault_retired, with an instruction that writes memory: that is taken back too, and the handler finds
# the old value there.
#@ spec: LWP §6.4
#@ record: 3 @calls flags=0x8000 data2=@function
#@ log: 0 1
.include "lwp.inc"
    BLOCK flags=BRE
    EVENTS i3=100
    BEGIN
    HANDLE SIGSEGV, repair
    PROTECT ring, 0, 64
    movq $7, word(%rip)
    START
    mov %rsp, %r12
    mov $word+8, %esp
calls:
    call function
    nop
function:
    mov %r12, %rsp
    STOP
    mov word(%rip), %rax
    sub $calls+5, %rax
    mov %rax, (%rbx)
    movq $1, 8(%rbx)
    FINISH
repair:
    mov word(%rip), %rax
    cmp $7, %rax
    mov $0, %eax
    cmovne %rsp, %rax
    llwpcb %r15
    mov %rax, (%rbx)
    PROTECT ring, 3, 64
    movl $1, block+148(%rip)
    llwpcb %r14
    ret
    .data
    .skip 4096
word: .quad 0

/* Promise: W19 */
