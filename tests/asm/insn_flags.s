# Of the flags only LWPINS changes one, and only carry.
#@ spec: LWP §5.3, §5.4, §5.6
#@ record: 1 @start+5
#@ record: 255 @insert
#@ log: 0x8d5 0x8d4
.include "lwp.inc"
    BLOCK flags=VAL
    EVENTS
    BEGIN
    pushq $0x8d5
    popfq
    START
    lwpval $0, %r15d, %r15d
    slwpcb %r13
    pushfq
    pop %rax
    pushq $0x8d5
    popfq
insert:
    lwpins $0, %r15d, %r15d
    pushfq
    pop %rcx
    STOP
    and $0x8d5, %eax
    and $0x8d5, %ecx
    NOTE %rax
    NOTE %rcx
    FINISH
