#@ variants: bare
# One write, one exit, rip-relative data.
        .globl _start
_start: movl    $1, %eax
        movl    $1, %edi
        leaq    text(%rip), %rsi
        movl    $text_end - text, %edx
        syscall
        cmpq    $text_end - text, %rax
        setne   %dil
        movzbl  %dil, %edi
        movl    $60, %eax
        syscall
        ud2
        .data
text:   .ascii  "hello\n"
text_end:
