/* What 64-bit mode lacks, and what an i386 step must not get wrong. */
.globl _start
_start:
        mov %esp, %ebp
        mov $0x17, %al
        mov $0x28, %bl
        add %bl, %al
        daa
        das
        aaa
        aas
        aam
        aad
        pusha
        popa
        push %cs
        pop %eax
        push %ds
        pop %ds
        push %es
        pop %es
        mov %ss, %eax
        mov %eax, %ss           /* no trap behind it: two at once */
        inc %ecx
        push %ss
        pop %ss
        jmp 1f
        nop
1:      inc %eax
        dec %edx
        enter $16, $0
        leave
        mov $3, %ecx
2:      loop 2b
        mov $0x10002, %ecx
3:      addr16 loop 3b
        xor %ecx, %ecx
        jecxz 4f
        nop
4:      mov $0x10000, %ecx
        jcxz 5f
        nop
5:      lcall $0x23, $far
        ljmp $0x23, $6f
        nop
6:      mov $buffer, %edi
        mov $buffer, %esi
        mov $17, %ecx
        rep movsb
        mov $5, %ecx
        mov $buffer, %edi
        rep stosl
        xor %ecx, %ecx
        rep stosb
        bound %eax, limits
        arpl %ax, %bx
        les pointer, %edi
        into
        pushf
        pop %eax
        and $0x100, %eax        /* the trap flag must not be seen */
        push %eax
        popf
        mov %eax, %ebx
        call 7f
7:      pop %edx
        mov $8f, %edx
        jmp *%edx
        nop
8:      call *edx_target
        fldpi
        fstp %st(0)
        movaps buffer, %xmm0
        mov $1, %eax
        int $0x80
far:    lret
next:   ret
        .data
        .balign 16
buffer: .fill 64, 1, 5
limits: .long -2147483648, 2147483647
pointer: .long buffer
        .short 0x2b
edx_target: .long next
