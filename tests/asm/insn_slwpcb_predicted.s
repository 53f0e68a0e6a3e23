# SLWPCB writes the counters as they stand also where a predictor has every branch reported.
#@ spec: LWP §5.4, §4.2
#@ options: --predictor generic
#@ counter: 2 = 955
#@ counter: 3 = 35
#@ log: 40 968
.include "lwp.inc"
    BLOCK flags=IRE|BRE
    EVENTS i2=1000, c2=990, i3=100, c3=50
    BEGIN
    START
    mov $10, %ecx
back:
    dec %ecx
    jnz back
    slwpcb %rax
    mov block+148(%rip), %eax
    NOTE %rax
    mov block+140(%rip), %eax
    NOTE %rax
    mov $5, %ecx
1:  loop 1b
    STOP
    FINISH
