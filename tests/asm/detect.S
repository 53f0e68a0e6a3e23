# Ends with 0 if CPUID lists LWP and says that it is enabled, with 1 otherwise.
    .globl _start
_start:
    mov $0x80000000, %eax
    cpuid
    mov $1, %edi
    cmp $0x8000001c, %eax
    jb 1f
    mov $0x80000001, %eax
    cpuid
    bt $15, %ecx
    jnc 1f
    mov $0x8000001c, %eax
    xor %ecx, %ecx
    cpuid
    and $1, %eax
    xor $1, %eax
    mov %eax, %edi
1:  mov $60, %eax
    syscall
