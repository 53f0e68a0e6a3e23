# LWPINS needs no event and no counter, records each time, and clears the carry flag while there is room.
#@ spec: LWP §5.5
#@ record: 255 @first flags=0x1234 data1=7 data2=0x89abcdef
#@ record: 255 @second flags=0xffff data1=0x55 data2=0x0123456789abcdef
#@ log: 0 0xad6
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movabs $0x0123456789abcdef, %r11
    mov $7, %edx
    START
    stc
first:
    lwpins $0x1234, %edx, %r11d
    setc %al
    movzx %al, %eax
    NOTE %rax
    pushq $0xad7
    popfq
second:
    lwpins $0x7fffffff, words+4(,%r15,8), %r11
    pushfq
    pop %rax
    and $0xfff, %eax
    NOTE %rax
    STOP
    FINISH
    .data
words: .long 0x11, 0x55
