# Every register, and addresses of many shapes.
#@ spec: LWP §5.1
#@ record: 255 @start+5 data1=0xa0a data2=0xb0b
#@ record: 255 @start+14 flags=1 data1=0x0404 data2=0x0e0e
#@ record: 255 @rip flags=2 data1=0x1111 data2=0x0d0d
#@ record: 255 @scaled flags=3 data1=0x3333 data2=0x0c0c
#@ record: 255 @stack_based flags=4 data1=0x2222 data2=0x0b0b
#@ record: 255 @narrow flags=5 data1=0x1111 data2=0x0a0a
#@ record: 255 @absolute flags=6 data1=0x3333 data2=0x0909
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    mov $0xa0a, %r10d
    mov $0xb0b, %r11d
    mov $0x404, %esp
    movabs $0x0e0e, %rsi
    mov $0x0d0d, %edi
    mov $0x0c0c, %r9d
    mov $0x0909, %edx
    mov $words, %ebp
    mov $2, %eax
    START
    lwpins $0, %r10d, %r11d
    lwpins $1, %esp, %rsi
rip:
    lwpins $2, words(%rip), %rdi
scaled:
    lwpins $3, (%rbp,%rax,4), %r9
    lea 4(%rbp), %rsp
stack_based:
    lwpins $4, (%rsp), %r11
    movabs $0xffffffff00000000, %rcx
    or %rbp, %rcx
narrow:
    lwpins $5, (%ecx), %r10
absolute:
    lwpins $6, words+8, %rdx
    STOP
    mov $stack_end, %esp
    FINISH
    .data
words: .long 0x1111, 0x2222, 0x3333
