#@ variants: bare
#@ args: 1
#@ timeout: 30
# A timer fires into code that is laid out as superblocks from the second run on: calls that are
# inlined, returns and indirect jumps that mostly lead where they are expected to and sometimes
# elsewhere, where the flags are read that they had before. Prints a checksum of all flags seen, and as
# a note the number of signals, each of which adds exactly four instructions.
        .globl _start
_start: movq    (%rsp), %r15            # argument count
        andq    $-4096, %rsp            # its low bits decide over flags
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
        movq    $4000000, %r12
        xorl    %r13d, %r13d
        movl    $0x12345, %r14d
1:      imulq   $1103515245, %r14, %r14
        addq    $12345, %r14
        movq    %r14, %r9
        shrq    $33, %r9
        call    adds                    # the flags of an addition, of registers
        xorl    %esi, %esi
        call    releases                # … and of one to the stack pointer
        xorl    %esi, %esi
        call    compares
        xorl    %esi, %esi
        movq    %r9, %rdx               # one in eight leads elsewhere
        andl    $7, %edx
        leaq    targets(%rip), %rbx
        movq    (%rbx,%rdx,8), %r11
        cmpq    $3, %rdx
        jmp     *%r11                   # by a register
2:      xorl    %esi, %esi
        movq    %r9, %rdx
        shrq    $3, %rdx
        andl    $7, %edx
        leaq    places(%rip), %rbx
        subq    $5, %rdx
        leaq    5(%rdx), %rcx
        jmp     *(%rbx,%rcx,8)          # through memory
3:      xorl    %esi, %esi
        decq    %r12
        jnz     1b
        movl    $38, %eax
        xorl    %edi, %edi
        leaq    timer_off(%rip), %rsi
        xorl    %edx, %edx
        syscall
        movq    signals(%rip), %rax
        leaq    digits(%rip), %rdi
        call    write_digits
        movq    %r13, %rax
        leaq    sum(%rip), %rdi
        call    write_digits
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
write_digits:                           # of rax in hexadecimal, at a fixed cost
        movl    $16, %ecx
4:      rolq    $4, %rax
        movl    %eax, %edx
        andl    $15, %edx
        leal    0x30(%rdx), %esi
        leal    0x57(%rdx), %r8d
        cmpl    $10, %edx
        cmovael %r8d, %esi
        movb    %sil, (%rdi)
        incq    %rdi
        decl    %ecx
        jnz     4b
        ret
adds:   movq    (%rsp), %rax            # one in eight returns elsewhere
        leaq    reads(%rip), %rcx
        testb   $7, %r9b
        cmovzq  %rcx, %rax
        movq    (%rsp), %r8
        movq    %rax, (%rsp)
        movq    %r9, %rax
        addq    %r14, %rax
        ret
releases:
        movq    (%rsp), %rax
        leaq    reads(%rip), %rcx
        testb   $0x70, %r9b
        cmovzq  %rcx, %rax
        movq    (%rsp), %r8
        movq    %rax, (%rsp)
        pushq   %rbp
        subq    $24, %rsp
        addq    $24, %rsp
        popq    %rbp
        ret
compares:
        movq    (%rsp), %rax
        leaq    reads(%rip), %rcx
        testl   $0x1c0, %r9d
        cmovzq  %rcx, %rax
        movq    (%rsp), %r8
        movq    %rax, (%rsp)
        cmpb    $0x55, %r9b
        ret
reads:  pushfq                          # all flags, but those that are not arithmetic
        popq    %rax
        andl    $0x8d5, %eax
        addq    %rax, %r13
        rolq    $7, %r13
        jmp     *%r8
takes:  pushfq
        popq    %rax
        andl    $0x8d5, %eax
        addq    %rax, %r13
        rolq    $5, %r13
        jmp     2b
holds:  pushfq
        popq    %rax
        andl    $0x8d5, %eax
        addq    %rax, %r13
        rolq    $3, %r13
        jmp     3b
handler:
        incq    signals(%rip)
        ret
restorer:
        movl    $15, %eax
        syscall
        .data
        .balign 8
action: .quad   handler, 0x14000000, restorer, 0  # SA_RESTORER | SA_RESTART
timer:  .quad   0, 150, 0, 150
timer_off: .quad 0, 0, 0, 0
signals: .quad  0
targets: .quad  2b, 2b, 2b, takes, 2b, 2b, 2b, 2b
places: .quad   3b, holds, 3b, 3b, 3b, 3b, 3b, 3b
text:   .ascii  "# signals "
digits: .ascii  "0000000000000000\n"
        .ascii  "flags "
sum:    .ascii  "0000000000000000\n"
text_end:
