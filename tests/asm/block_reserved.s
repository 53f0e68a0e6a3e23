# Reserved bits and fields are ignored and kept; software's quadwords too. Flags are cut.
#@ spec: LWP §3.1, §3.2
#@ flags: 0x6
#@ record: 1 @sample
#@ log: 0xffffffff 0xfc000000
.include "lwp.inc"
    BLOCK flags=0x1fffff87
    EVENTS i1=0xfc000000, c1=0xfc000000, i2=0xfc001000, c2=0xfc001000
    BEGIN
    movl $-1, block+20(%rip)
    movl $-1, block+56(%rip)
    movl $-1, block+60(%rip)
    movl $-1, block+68(%rip)
    movl $-1, block+124(%rip)
    START
sample:
    lwpval $0, %r15d, %r15d
    STOP
    mov block+124(%rip), %eax
    NOTE %rax
    mov block+128(%rip), %eax
    NOTE %rax
    FINISH

/* Promise: W19 */
