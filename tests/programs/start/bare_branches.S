#@ variants: bare
# Each kind of branch once, without a C library; prints a checksum in hexadecimal.
        .globl _start
_start: xorl    %ebx, %ebx
        movl    $100000, %ecx
1:      addq    %rcx, %rbx              # conditional branch, taken and not taken
        testb   $3, %cl
        jnz     2f
        xorq    $0x5555, %rbx
2:      decl    %ecx
        jnz     1b
        movl    $20, %edi               # recursion
        call    fib
        addq    %rax, %rbx
        leaq    add7(%rip), %rdx        # indirect call through a register
        call    *%rdx
        call    *pointer(%rip)          # indirect call through memory
        leaq    3f(%rip), %rdx          # indirect jump
        jmp     *%rdx
        ud2
3:      leaq    4f(%rip), %rdx          # return as a jump
        pushq   %rdx
        ret
        ud2
4:      movl    $3, %ecx                # jump table
5:      leaq    table(%rip), %rdx
        jmp     *(%rdx,%rcx,8)
case0:  addq    $0x1000, %rbx
        jmp     6f
case1:  addq    $0x100, %rbx
        movl    $0, %ecx
        jmp     5b
case2:  addq    $0x10, %rbx
        movl    $1, %ecx
        jmp     5b
case3:  addq    $0x1, %rbx
        movl    $2, %ecx
        jmp     5b
6:      leaq    buffer(%rip), %rdi
        movl    $16, %ecx
7:      rolq    $4, %rbx
        movl    %ebx, %eax
        andl    $15, %eax
        leaq    digits(%rip), %rsi
        movb    (%rsi,%rax), %al
        stosb
        loop    7b
        movb    $10, (%rdi)
        movl    $1, %eax
        movl    $1, %edi
        leaq    buffer(%rip), %rsi
        movl    $17, %edx
        syscall
        xorl    %edi, %edi
        movl    $60, %eax
        syscall
        ud2

fib:    movl    %edi, %eax
        cmpl    $2, %edi
        jb      1f
        pushq   %rdi
        decl    %edi
        call    fib
        popq    %rdi
        pushq   %rax
        subl    $2, %edi
        call    fib
        popq    %rdi
        addq    %rdi, %rax
1:      ret
add7:   addq    $7, %rbx
        ret

        .data
        .balign 8
pointer: .quad  add7
table:  .quad   case0, case1, case2, case3
digits: .ascii  "0123456789abcdef"
buffer: .zero   17
