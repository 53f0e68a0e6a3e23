# The form of 2007: a block without events leaves LWP off, and SLWPCB gives 0; one not aligned to 16
# raises #GP(0).
#@ spec: P07 §5.3
#@ options: --revision 2007
#@ head: 0
#@ log: 0 11 128 0 @unaligned
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    movq $5, skip(%rip)
    HANDLE SIGSEGV, note_fault
    START
    slwpcb %rax
    NOTE %rax
    mov $block+8, %eax
unaligned:
    llwpcb %rax
    FINISH

/* Promise: W11 */
