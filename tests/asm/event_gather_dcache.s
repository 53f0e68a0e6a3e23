# Each element of a gather that its mask selects is a load of its own: the first miss of an instruction is recorded, and the
# others are in the cache afterwards. No other element is read. A bit string is read where the bit is, far from the
# operand's address, in either direction.
#@ spec: LWP §4.2
#@ record: 4 @gather flags=0x7000 data1=240 data2=@line
#@ record: 4 @unread flags=0x7000 data1=240 data2=@line+512
#@ record: 4 @wide flags=0x7000 data1=240 data2=@line+1280
#@ record: 4 @test flags=0x7000 data1=240 data2=@line+3072
#@ record: 4 @back flags=0x7000 data1=240 data2=@line+1984
#@ record: 4 @set flags=0x7000 data1=240 data2=@line+3584
#@ record: 4 @near flags=0x7000 data1=240 data2=@line+2048
.include "lwp.inc"
    BLOCK flags=DME
    EVENTS
    BEGIN
    vmovdqu indices(%rip), %xmm1
    vmovdqu mask(%rip), %xmm2
    vmovdqu mask(%rip), %ymm3
    vmovdqu quads(%rip), %ymm4
    mov $line, %edi
    START
gather:
    vpgatherdd %xmm2, (%rdi,%xmm1,4), %xmm5
    mov line+256(%rip), %r15b
    mov line+768(%rip), %r15b
unread:
    mov line+512(%rip), %r15b
wide:
    vpgatherqq %ymm3, 1024(%rdi,%ymm4), %ymm6
    mov line+1024(%rip), %r15b
    mov $8192, %eax
test:
    bt %rax, 2048(%rdi)
    mov $-1, %rax
back:
    bt %eax, 2048-60(%rdi)
    mov $12288, %ecx
set:
    bts %rcx, 2048(%rdi)
near:
    btl $5, 2048(%rdi)
    STOP
    xor %r15d, %r15d
    FINISH
    .data
indices:
    .long 0, 64, 128, 192
mask:
    .long -1, 0x80000000, 0x7fffffff, -2
    .quad 0, 0
quads:
    .quad 256, 0, 512, 768
    .bss
    .balign 4096
line: .skip 8192

/* Promise: W9 */
