//@ variants: static
//@ cflags: -O1
/* Code that changes between executions, and within one. */
#include "check.h"

int main(void)
{
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    int sum = 0;
    for (int i = 0; i < 100; i++) {
        /* i nops in front, so that every version has another length */
        memset(page, 0x90, i);
        memcpy(page + i, "\xb8\0\0\0\0\xc3", 6);
        page[i + 1] = i;
        sum += ((int (*)(void))page)();
    }
    CHECK_EQ(sum, 4950, "sum");
    /* mov [rip+1], edi ; mov eax, imm32 ; ret */
    memcpy(page, "\x89\x3d\x01\x00\x00\x00\xb8\0\0\0\0\xc3", 12);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(((int (*)(int))page)(i), i, "patched");
    return done();
}
