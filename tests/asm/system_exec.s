# exec: the new program starts with LWP off. It is this program again, told by its argument count.
#@ spec: LWP §6.2
#@ head: 0
#@ log: 0 2
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    cmpq $1, (%rsp)
    jne second
    START
    mov $59, %eax
    mov $path, %edi
    mov $arguments, %esi
    xor %edx, %edx
    syscall
    ud2
second:
    slwpcb %rax
    NOTE %rax
    mov (%rsp), %rax
    NOTE %rax
    FINISH
    .data
path: .asciz "/proc/self/exe"
    .balign 8
arguments: .quad path, path, 0

/* Promise: W19 */
