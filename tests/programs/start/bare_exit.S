#@ variants: bare
#@ exit: 42
# The smallest program: one system call.
        .globl _start
_start: movl    $231, %eax              # exit_group
        movl    $42, %edi
        syscall
        ud2
