#@ variants: bare
#@ args: 1
#@ timeout: 30
# A timer fires into code that is laid out as superblocks from the second run on: calls that are
# inlined, returns, indirect jumps and indirect calls that mostly lead where they are expected to and
# sometimes elsewhere, where the flags are read that they had before. Prints a checksum of all flags
# seen, and as a note the number of signals, each of which adds exactly four instructions.
#include "../timer.h"

# Where the flags say zero, returns to `reads`, which goes on at r8.
        .macro  return_elsewhere
        movq    (%rsp), %rax
        leaq    reads(%rip), %rcx
        cmovzq  %rcx, %rax
        movq    (%rsp), %r8
        movq    %rax, (%rsp)
        .endm

# Adds all arithmetic flags to the checksum.
        .macro  note_flags turn
        pushfq
        popq    %rax
        andl    $0x8d5, %eax
        addq    %rax, %r13
        rolq    $\turn, %r13
        .endm

        .globl _start
#ifdef GENERATED
# Executes a copy of everything, in memory that can be written to: code and data lie apart, as here.
_start: movl    $9, %eax                # mmap
        xorl    %edi, %edi
        movl    $text_end - copied, %esi
        movl    $7, %edx
        movl    $0x22, %r10d            # private, of no file
        movl    $-1, %r8d
        xorl    %r9d, %r9d
        syscall
        movq    %rax, %rdi
        leaq    copied(%rip), %rsi
        movl    $code_end - copied, %ecx
        rep movsb
        leaq    action - copied(%rax), %rdi
        leaq    action(%rip), %rsi
        movl    $text_end - action, %ecx
        rep movsb
        leaq    copied(%rip), %rcx
        movq    %rax, %rdx
        subq    %rcx, %rdx              # added to the addresses in the tables
        movl    $(tables_end - targets) / 8, %ecx
1:      addq    %rdx, targets - copied - 8(%rax,%rcx,8)
        decl    %ecx
        jnz     1b
        addq    %rdx, action - copied(%rax)
        addq    %rdx, action - copied + 16(%rax)
        jmp     *%rax
copied:
#else
_start:
#endif
        movq    (%rsp), %r15            # argument count
        andq    $-4096, %rsp            # its low bits decide over flags
        movl    $4000000, %r12d
        movl    $40000000, %eax         # ten times as long with two arguments more
        leaq    -2(%r15), %rcx
        cmpq    $2, %r15
        cmovaq  %rax, %r12
        cmovaq  %rcx, %r15
        start_timer
        xorl    %r13d, %r13d
        movl    $0x12345, %r14d
1:      imulq   $1103515245, %r14, %r14
        addq    $12345, %r14
        movq    %r14, %r9
        shrq    $33, %r9
        call    adds                    # the flags of an addition, of registers
        xorl    %esi, %esi
        movq    %r9, %rcx
        shrq    $6, %rcx
        andl    $7, %ecx
        leaq    callees(%rip), %rbx
        call    *(%rbx,%rcx,8)          # … and of one to the stack pointer
        xorl    %esi, %esi
        movq    %r9, %rcx
        shrq    $9, %rcx
        andl    $7, %ecx
        leaq    compares(%rip), %rax
        leaq    notes(%rip), %rdx
        cmpq    $6, %rcx
        cmoveq  %rdx, %rax
        call    *%rax
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
        jz      4f
        testl   $4095, %r12d
        jnz     1b
        set_timer                       # however slow an alarm is, the next is asked for from here
        jmp     1b
4:      stop_timer
        movq    signals(%rip), %rax
        leaq    digits(%rip), %rdi
        write_digits
        movq    %r13, %rax
        leaq    sum(%rip), %rdi
        write_digits
        print_and_exit
adds:
        testb   $7, %r9b
        return_elsewhere
        movq    %r9, %rax
        addq    %r14, %rax
        ret
releases:
        testb   $0x70, %r9b
        return_elsewhere
        pushq   %rbp
        subq    $24, %rsp
        addq    $24, %rsp
        popq    %rbp
        ret
compares:
        testl   $0x1c0, %r9d
        return_elsewhere
        cmpb    $0x55, %r9b
        ret
reads:  note_flags 7
        jmp     *%r8
notes:  note_flags 11
        ret
takes:  note_flags 5
        jmp     2b
holds:  note_flags 3
        jmp     3b
        counting_handler
code_end:
        timer_data 30, 0
targets: .quad  2b, 2b, 2b, takes, 2b, 2b, 2b, 2b
callees: .quad  releases, releases, notes, releases, releases, releases, releases, releases
places: .quad   3b, holds, 3b, 3b, 3b, 3b, 3b, 3b
tables_end:
text:   .ascii  "# signals "
digits: .ascii  "0000000000000000\n"
        .ascii  "flags "
sum:    .ascii  "0000000000000000\n"
text_end:
