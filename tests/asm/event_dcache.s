# Cold loads of the generic machine come from memory; a store allocates; a load across two lines counts
# once and names the lower address that missed.
#@ spec: LWP §4.2
#@ record: 4 @cold flags=0x7000 data1=240 data2=@line
#@ record: 4 @read_modify flags=0x7000 data1=240 data2=@line+128
#@ record: 4 @split flags=0x7000 data1=240 data2=@line+252
#@ record: 4 @half flags=0x7000 data1=240 data2=@line+384
#@ record: 4 @popped flags=0x7000 data1=240 data2=@line+512
.include "lwp.inc"
    BLOCK flags=DME
    EVENTS
    BEGIN
    START
cold:
    mov line(%rip), %eax
    mov line+60(%rip), %eax
    mov %eax, line+64(%rip)
    mov line+64(%rip), %eax
read_modify:
    incl line+128(%rip)
split:
    mov line+252(%rip), %rax
    mov line+256(%rip), %eax
    mov %al, line+320(%rip)
half:
    mov line+380(%rip), %rax
    prefetcht0 line+448(%rip)
    mov line+448(%rip), %eax
    mov $line+512, %esp
popped:
    pop %rax
    lea line+1024(%rip), %rax
    mov $line+2048, %edi
    STOP
    mov $stack_end, %esp
    FINISH
    .bss
    .balign 4096
line: .skip 8192

/* Promise: W9 */
