# A block of which the second half is on a missing page: the fault names the first byte there.
#@ spec: LWP §5.3, §6.4
#@ head: 0
#@ log: 11 2 @page @load
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $5, skip(%rip)
    HANDLE SIGSEGV, note_fault
    mov $page-64, %edi
    mov $block, %esi
    mov $64, %ecx
    rep movsb
    PROTECT page, 0
    mov $page-64, %eax
load:
    llwpcb %rax
    FINISH
    .bss
    .balign 4096
    .skip 4096
page:
    .skip 4096

/* Promise: W19 */
