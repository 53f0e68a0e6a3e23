#@ variants: bare
# Every kind of branch a known number of times: jcc short and near, taken and not, to the next
# instruction; loop, loope, loopne, jrcxz; direct and indirect jumps and calls; ret and ret imm.
        .globl _start
_start: movl    $10, %ebx
1:      cmpl    $5, %ebx
        je      2f                      # taken once of ten
        jne     3f                      # taken nine of nine
2:      nop
3:      jc      4f                      # to the next instruction, taken by chance of the flags
4:      testl   %ebx, %ebx
        .byte   0x0f, 0x85, 0, 0, 0, 0  # jnz near, to the next instruction
        decl    %ebx
        jnz     1b
        movl    $7, %ecx
5:      loop    5b
        jrcxz   6f
        ud2
6:      movl    $4, %ecx
7:      cmpl    %eax, %eax
        loope   7b
        movl    $4, %ecx
8:      cmpl    $1, %ecx
        loopne  8b
        jecxz   9f                      # not taken: rcx is 1 and the flags said so
        nop
9:      movl    $3, %ebx
10:     call    leaf
        leaq    leaf(%rip), %rax
        call    *%rax
        call    *pointer(%rip)
        pushq   $1
        pushq   $2
        call    pops
        leaq    11f(%rip), %rdx
        jmp     *%rdx
        ud2
11:     decl    %ebx
        .byte   0x0f, 0x85              # jnz near
        .long   10b - . - 4
        leaq    12f(%rip), %rax
        pushq   %rax
        ret
12:     jmp     13f
        ud2
13:     xorl    %edi, %edi
        movl    $60, %eax
        syscall
        ud2
leaf:   ret
pops:   ret     $16
        .data
        .balign 8
pointer: .quad  leaf
