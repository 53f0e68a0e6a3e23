//@ variants: pie static
/* The same bytes decoded at several offsets: jumps into the middle of an instruction, prefixes jumped
 * over, code in immediates. */
#include "check.h"

__asm__(".text\n"
        /* From +0: mov eax, 0x01c083b0 ... ; from +1: mov al, 0x83 ... */
        ".globl o_start\n"
        "o_start: .byte 0xb8, 0xb0, 0x07, 0x90, 0x90\n" /* +0 mov eax,0x909007b0; +1 mov al,7; nop; nop */
        " .byte 0xc3\n"
        ".globl o_lock\no_lock: jmp 1f\n.byte 0xf0\n1: incl (%rdi)\n ret\n"
        ".globl o_lock_from_front\no_lock_from_front: .byte 0xf0\n incl (%rdi)\n ret\n"
        ".globl o_hidden\no_hidden: xorl %eax, %eax\n jmp 1f+2\n1: movabsq $0xc3c3c305c083c031, %rdx\n ret\n"
        ".globl o_both\no_both: xorl %ecx, %ecx\n movl $2, %edx\n"
        "1: .byte 0x81, 0xc1\n2: .byte 0x83, 0xc1, 0x01, 0x90\n" /* add ecx, 0x9001c183 | add ecx, 1; nop */
        " decl %edx\n jnz 2b\n movl %ecx, %eax\n ret\n");
int o_start(void), o_hidden(void), o_both(void);
void o_lock(int *), o_lock_from_front(int *);

int main(void)
{
    int (*inner)(void) = (int (*)(void))((char *)o_start + 1);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ((uint32_t)o_start(), 0x909007b0, "from the start");
        CHECK_EQ((unsigned char)inner(), 7, "from the second byte");
        int word = i;
        o_lock(&word);
        o_lock_from_front(&word);
        ((void (*)(int *))((char *)o_lock_from_front + 1))(&word);
        CHECK_EQ(word, i + 3, "with the prefix and without");
        CHECK_EQ(o_hidden(), 5, "code inside an immediate");
        CHECK_EQ((uint32_t)o_both(), 0x9001c184, "both decodings in one loop");
        if (check_failures)
            break;
    }
    return done();
}

/* Promise: F7 */
