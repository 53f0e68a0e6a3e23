# A ring of 1055 bytes is one of 1024: 31 records, then it is full.
#@ spec: LWP §3.2
#@ head: 992
#@ missed: 2
#@ record: 255 @insert x31
.include "lwp.inc"
    BLOCK size=1055
    EVENTS
    BEGIN
    mov $33, %ecx
    START
insert:
    lwpins $0, %r15d, %r15d
    loop insert
    STOP
    FINISH

/* Promise: W19 */
