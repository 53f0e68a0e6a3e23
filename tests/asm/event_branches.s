# Every kind of branch, taken and not; a conditional one that leads to the same place either way.
#@ spec: LWP §4.2
#@ record: 3 @je_taken flags=0x8000 data2=@je_target
#@ record: 3 @jne_not data2=@after_jne
#@ record: 3 @same_place flags=0x8000 data2=@jump
#@ record: 3 @jump flags=0x8000 data2=@direct
#@ record: 3 @direct flags=0x8000 data2=@function
#@ record: 3 @function flags=0x8000 data2=@after_call
#@ record: 3 @indirect flags=0x8000 data2=@function
#@ record: 3 @function flags=0x8000 data2=@after_indirect
#@ record: 3 @jump_indirect flags=0x8000 data2=@landed
#@ record: 3 @looping flags=0x8000 data2=@looping
#@ record: 3 @looping data2=@after_loop
#@ record: 3 @counts_zero flags=0x8000 data2=@zero
#@ record: 3 @loops_not data2=@after_loops_not
#@ record: 3 @counts_ecx data2=@after_counts_ecx
#@ record: 3 @far_return flags=0x8000 data2=@returned_far
.include "lwp.inc"
    BLOCK flags=BRE
    EVENTS
    BEGIN
    START
    xor %eax, %eax
je_taken:
    je je_target
    nop
je_target:
    nop
jne_not:
    jne je_target
after_jne:
    nop
same_place:
    je jump
jump:
    jmp direct
    nop
direct:
    call function
after_call:
    mov $function, %eax
indirect:
    call *%rax
after_indirect:
    mov $target, %eax
jump_indirect:
    jmp *(%rax)
function:
    ret
landed:
    mov $2, %ecx
looping:
    loop looping
after_loop:
    nop
counts_zero:
    jrcxz zero
    nop
zero:
    mov $1, %ecx
    test %esp, %esp
loops_not:
    loope zero
after_loops_not:
    movabs $0x100000001, %rcx
counts_ecx:
    jecxz zero
after_counts_ecx:

    push $0x33
    push $returned_far
far_return:
    lretq
    nop
returned_far:
    STOP
    FINISH
    .data
target: .quad landed
