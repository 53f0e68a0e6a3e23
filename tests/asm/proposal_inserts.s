# The form of 2007 has neither LWPINS nor LWPVAL: both raise #UD, with LWP off and on. Programs tell the forms apart by the
# leaf: where the shipped one says in EBX where the slots begin, this one says its version, 1.
#@ spec: P07 §4.1, §5.1
#@ options: --revision 2007
#@ flags: 0x80000003
#@ head: 0
#@ size: 256
#@ log: 4 1 1
.include "lwp.inc"
    BLOCK size=256
    EVENTS
    BEGIN
    HANDLE SIGILL, undefined
    lwpins $1, %eax, %eax
    lwpval $1, %eax, %eax
    movl $1<<26|0x3ffffff, block+40(%rip)
    movl $0x3ffffff, block+44(%rip)
    START
    lwpins $1, %eax, %eax
    lwpval $1, %eax, %eax
    STOP
    mov %rbx, %rbp
    mov $0x80000001, %eax
    cpuid
    shr $15, %ecx
    and $1, %ecx
    mov %rcx, 8(%rbp)
    mov $0x8000001c, %eax
    cpuid
    shr $24, %ebx
    mov %rbx, 16(%rbp)
    FINISH
undefined:
    incq (%rbx)
    addq $9, UCONTEXT_RIP(%rdx)
    ret

/* Promise: W11 */
