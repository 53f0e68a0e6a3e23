#@ variants: bare
#@ args: 1
# A timer fires into a computation of known length. Prints the number of signals, 16 digits always, as a
# note: it differs from run to run. Each signal adds exactly four instructions (two of the handler, two
# of the restorer), so instructions - 4 * signals is the same number every time, and with no argument,
# when the timer stays off, it is that number plus none.
        .globl _start
_start: movq    (%rsp), %r15            # argument count
        movl    $13, %eax               # rt_sigaction(SIGALRM)
        movl    $14, %edi
        leaq    action(%rip), %rsi
        xorl    %edx, %edx
        movl    $8, %r10d
        syscall
        testq   %rax, %rax
        jnz     bad
        leaq    timer(%rip), %rsi
        leaq    timer_off(%rip), %rax
        cmpq    $2, %r15
        cmovbq  %rax, %rsi
        movl    $38, %eax               # setitimer(ITIMER_REAL)
        xorl    %edi, %edi
        xorl    %edx, %edx
        syscall
        movq    $6000000, %rcx
        xorl    %eax, %eax
        leaq    table(%rip), %rbx
1:      .rept   12                      # a long block
        addq    $3, %rax
        leaq    1(%rax,%rax), %rdx
        xorq    %rdx, %rax
        .endr
        movq    %rcx, %rdx
        andl    $3, %edx
        jz      2f
        call    leaf
        call    *(%rbx,%rdx,8)
2:      decq    %rcx
        jnz     1b
        movl    $38, %eax
        xorl    %edi, %edi
        leaq    timer_off(%rip), %rsi
        xorl    %edx, %edx
        syscall
        movq    signals(%rip), %rax     # in hexadecimal, at a fixed cost
        leaq    digits(%rip), %rdi
        movl    $16, %ecx
3:      rolq    $4, %rax
        movl    %eax, %edx
        andl    $15, %edx
        leal    0x30(%rdx), %esi
        leal    0x57(%rdx), %r8d
        cmpl    $10, %edx
        cmovael %r8d, %esi
        movb    %sil, (%rdi)
        incq    %rdi
        decl    %ecx
        jnz     3b
        movl    $1, %eax
        movl    $1, %edi
        leaq    text(%rip), %rsi
        movl    $text_end - text, %edx
        syscall
        xorl    %edi, %edi
        movl    $60, %eax
        syscall
bad:    movl    $1, %edi
        movl    $60, %eax
        syscall
        ud2
leaf:   incq    %r14
        ret
other:  decq    %r14
        ret
handler:
        incq    signals(%rip)
        ret
restorer:
        movl    $15, %eax
        syscall
        .data
        .balign 8
action: .quad   handler, 0x14000000, restorer, 0  # SA_RESTORER | SA_RESTART
timer:  .quad   0, 700, 0, 700
timer_off: .quad 0, 0, 0, 0
signals: .quad  0
table:  .quad   leaf, leaf, other, leaf
text:   .ascii  "# signals "
digits: .ascii  "0000000000000000\n"
text_end:
