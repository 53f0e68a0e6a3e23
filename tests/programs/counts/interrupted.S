#@ variants: bare
#@ args: 1
# A timer fires into a computation of known length. Prints the number of signals, 16 digits always, as a
# note: it differs from run to run. Each signal adds exactly four instructions (two of the handler, two
# of the restorer), so instructions - 4 * signals is the same number every time, and with no argument,
# when the timer stays off, it is that number plus none.
#include "../timer.h"
        .globl _start
_start: movq    (%rsp), %r15            # argument count
        start_timer
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
        stop_timer
        movq    signals(%rip), %rax     # in hexadecimal, at a fixed cost
        leaq    digits(%rip), %rdi
        write_digits
        print_and_exit
leaf:   incq    %r14
        ret
other:  decq    %r14
        ret
        counting_handler
        timer_data 700, 700
table:  .quad   leaf, leaf, other, leaf
text:   .ascii  "# signals "
digits: .ascii  "0000000000000000\n"
text_end:
