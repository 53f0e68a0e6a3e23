# The ring lies over the block's own software area and slots: the unit reads and writes them as memory.
#@ spec: LWP §5.3
#@ head: 32
#@ record: 0 0
#@ log: @insert
.include "lwp.inc"
    BLOCK base=block+192-32
    EVENTS
    BEGIN
    START
insert:
    lwpins $0, %r15d, %r15d
    STOP
    mov block+168(%rip), %rax
    NOTE %rax
    FINISH

/* Promise: W19 */
