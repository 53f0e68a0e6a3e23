//@ variants: pie static
/* Code that changes the instruction it is about to execute: x86 promises that a store is seen by the
 * next instruction executed at that place, also in the same basic block. */
#include "check.h"

static unsigned char *page;

static void immediate_ahead(void)
{
    /* mov [rip+1], edi ; mov eax, imm32 ; ret */
    memcpy(page, "\x89\x3d\x01\x00\x00\x00\xb8\0\0\0\0\xc3", 12);
    int (*run)(int) = (int (*)(int))page;
    for (int i = 0; i < 2000; i++)
        CHECK_EQ(run(i * 3), i * 3, "the immediate of the next instruction");
}

static void opcode_ahead(void)
{
    /* mov byte [rip+0], dil ; inc/dec via 0xff /0 or /1: ff c0 = inc eax, ff c8 = dec eax; ret */
    unsigned char *p = page + 64;
    memcpy(p, "\x31\xc0\x40\x88\x3d\x01\x00\x00\x00\xff\xc0\xc3", 12);
    int (*run)(int) = (int (*)(int))p;
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(run(0xc0), 1, "inc");
        CHECK_EQ(run(0xc8), -1, "dec");
    }
}

static void branch_ahead(void)
{
    /* Retarget a jump just before it: mov [rip+1], dil ; jmp rel8 ; ... */
    unsigned char *p = page + 128;
    unsigned char code[] = {0x40, 0x88, 0x3d, 0x01, 0, 0, 0, 0xeb, 0x00,
                            0xb8, 1, 0, 0, 0, 0xc3, 0xb8, 2, 0, 0, 0, 0xc3, 0xb8, 3, 0, 0, 0, 0xc3};
    memcpy(p, code, sizeof code);
    int (*run)(int) = (int (*)(int))p;
    for (int i = 0; i < 1500; i++)
        CHECK_EQ(run(i % 3 * 6), i % 3 + 1, "the target of the next jump");
}

static void loop_body(void)
{
    /* A loop that increments its own immediate: mov ecx,100; L: add eax,imm8; inc byte [imm8]; dec ecx; jnz L; ret */
    unsigned char *p = page + 256;
    unsigned char code[] = {0x31, 0xc0, 0xb9, 100, 0, 0, 0, 0x83, 0xc0, 0x01,
                            0xfe, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xff, 0xc9, 0x75, 0xf3, 0xc3};
    int (*run)(void) = (int (*)(void))p;
    for (int i = 0; i < 50; i++) {
        memcpy(p, code, sizeof code);
        /* imm8 is 1, 2, ... 100, and sign-extended only above 127 */
        CHECK_EQ(run(), 5050, "a loop that rewrites itself");
    }
}

static void unrolls_itself(void)
{
    /* stosb over the next instructions: rep stosb of nops over a ud2 sled, then falls into it. */
    unsigned char *p = page + 512;
    unsigned char code[] = {0x48, 0x8d, 0x3d, 0x09, 0, 0, 0, 0xb9, 20, 0, 0, 0, 0xb0, 0x90, 0xf3, 0xaa};
    for (int i = 0; i < 100; i++) {
        memcpy(p, code, sizeof code);
        memset(p + 16, 0x0f, 20);
        memcpy(p + 36, "\xb8\x09\x00\x00\x00\xc3", 6);
        CHECK_EQ(((int (*)(void))p)(), 9, "nops stored over the instructions ahead");
    }
}

int main(void)
{
    page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    RUN(immediate_ahead);
    RUN(opcode_ahead);
    RUN(branch_ahead);
    RUN(loop_body);
    RUN(unrolls_itself);
    return done();
}

/* Promise: F10 */
