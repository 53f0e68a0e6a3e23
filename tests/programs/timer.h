# A timer that fires into a computation: counts/interrupted and counts/superblocks share it.

# Sets SIGALRM's handler and the timer. Leads to `bad` where that is refused.
        .macro  start_timer
        movl    $13, %eax               # rt_sigaction(SIGALRM)
        movl    $14, %edi
        leaq    action(%rip), %rsi
        xorl    %edx, %edx
        movl    $8, %r10d
        syscall
        testq   %rax, %rax
        jnz     bad
        set_timer
        .endm

# Sets the timer if there is an argument, whose number is in r15; the call is the same without one.
        .macro  set_timer
        leaq    timer(%rip), %rsi
        leaq    timer_off(%rip), %rax
        cmpq    $2, %r15
        cmovbq  %rax, %rsi
        movl    $38, %eax               # setitimer(ITIMER_REAL)
        xorl    %edi, %edi
        xorl    %edx, %edx
        syscall
        .endm

        .macro  stop_timer
        movl    $38, %eax
        xorl    %edi, %edi
        leaq    timer_off(%rip), %rsi
        xorl    %edx, %edx
        syscall
        .endm

# Writes rax to rdi in hexadecimal, 16 digits always, at a fixed cost.
        .macro  write_digits
        movl    $16, %ecx
77:     rolq    $4, %rax
        movl    %eax, %edx
        andl    $15, %edx
        leal    0x30(%rdx), %esi
        leal    0x57(%rdx), %r8d
        cmpl    $10, %edx
        cmovael %r8d, %esi
        movb    %sil, (%rdi)
        incq    %rdi
        decl    %ecx
        jnz     77b
        .endm

# Writes `text`, ends well; `bad` ends otherwise.
        .macro  print_and_exit
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
        .endm

# Four instructions each signal.
        .macro  counting_handler
handler:
        incq    signals(%rip)
        ret
restorer:
        movl    $15, %eax
        syscall
        .endm

# The timer fires in `first` microseconds, and every `period` of them after that; never again with 0.
        .macro  timer_data first, period
        .data
        .balign 8
action: .quad   handler, 0x14000000, restorer, 0  # SA_RESTORER | SA_RESTART
timer:  .quad   0, \period, 0, \first
timer_off: .quad 0, 0, 0, 0
signals: .quad  0
        .endm
