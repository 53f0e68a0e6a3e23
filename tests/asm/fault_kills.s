# Without a handler the fault of a record ends the program by SIGSEGV.
#@ spec: LWP §6.4
#@ end: signal 11
.include "lwp.inc"
    BLOCK base=_start
    EVENTS
    BEGIN
    START
    lwpins $0, %r15d, %r15d
    STOP
    FINISH

/* Promise: W19 */
