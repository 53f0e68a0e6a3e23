#@ variants: bare
# REP instructions count once, whatever their count; a plain string instruction counts each time.
        .globl _start
_start: cld
        leaq    source(%rip), %rsi
        leaq    sink(%rip), %rdi
        movl    $1000, %ecx
        rep movsb
        xorl    %ecx, %ecx              # nothing to do: still one instruction
        rep movsb
        leaq    sink(%rip), %rdi
        movl    $500, %ecx
        xorl    %eax, %eax
        rep stosq
        leaq    source(%rip), %rdi
        movl    $4000, %ecx
        movb    $7, %al
        repne scasb
        leaq    source(%rip), %rsi
        leaq    sink(%rip), %rdi
        movl    $100, %ecx
        repe cmpsb
        movl    $50, %ecx
1:      movsb
        stosb
        lodsb
        decl    %ecx
        jnz     1b
        std
        leaq    sink+4000(%rip), %rdi
        movl    $333, %ecx
        rep stosb
        cld
        xorl    %edi, %edi
        movl    $60, %eax
        syscall
        ud2
        .bss
source: .zero   8192
sink:   .zero   8192
