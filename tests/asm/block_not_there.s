# Blocks where no page is, or no right to write, raise #PF: SIGSEGV at the LLWPCB; LWP is off then.
#@ spec: LWP §5.3, §6.4
#@ head: 0
#@ log: 11 1 0x10000 @absent 11 2 @page @readonly
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $5, skip(%rip)
    HANDLE SIGSEGV, note_fault
    START
    mov $0x10000, %eax
absent:
    llwpcb %rax
    slwpcb %rcx
    test %rcx, %rcx
    jnz 9f
    mov $page, %edi
    mov $block, %esi
    mov $192, %ecx
    rep movsb
    PROTECT page, 1
    mov $page, %eax
readonly:
    llwpcb %rax
    FINISH
9:  ud2
    .bss
    .balign 4096
page: .skip 4096

/* Promise: W19 */
