# The component lies on a page that cannot be written: XSAVE faults there, and saves nothing.
#@ spec: LWP §6.1
#@ log: 11 2 @page @save
.include "lwp.inc"
    BLOCK
    EVENTS
    BEGIN
    XSAVE_SETUP
    HANDLE SIGSEGV, note_fault
    mov $page, %r12d
    mov %r13, %rax
    sub $image, %rax
    and $~63, %rax
    sub %rax, %r12                      # the image ends up to 63 bytes before the component
    PROTECT page, 1
    movq $(after - save), skip
    xor %eax, %eax
    mov $1 << 30, %edx
    START
save:
    xsave (%r12)
after:
    STOP
    FINISH
    .bss
    .balign 4096
    .skip 4096
page:
    .skip 4096
    .text

/* Promise: W10, W19 */
