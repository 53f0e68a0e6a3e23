# A Bulldozer has no continuous mode: the flag is not granted and the ring fills.
#@ spec: LWP §3.2, §5.7
#@ cpu: bulldozer
#@ flags: 0
#@ head: 992
#@ missed: 1
#@ record: 255 @insert x31
.include "lwp.inc"
    BLOCK flags=CONT
    EVENTS
    BEGIN
    mov $32, %ecx
    START
insert:
    lwpins $0, %r15d, %r15d
    dec %ecx
    jnz insert
    STOP
    FINISH
