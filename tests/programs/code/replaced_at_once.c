//@ variants: pie static
//@ cflags: -O1
/* A great deal of generated code, all of which is replaced at once, again and again: what was made of it must
 * be given up to the last piece, and other code must not notice. */
#include "check.h"

enum { BLOCKS = 75000, BYTES = BLOCKS * 4 + 4096 };
typedef int function(void);

/* `test r, r; jz next`, for each block, and `mov eax, value; ret`. */
static void write_code(unsigned char *code, int round)
{
    MUST(mprotect(code, BYTES, PROT_READ | PROT_WRITE) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char block[] = {0x85, round % 2 ? 0xc0 : 0xc9, 0x74, 0x00};
        memcpy(code + i * 4, block, 4);
    }
    unsigned char end[] = {0xb8, round, 0, 0, 0, 0xc3};
    memcpy(code + BLOCKS * 4, end, sizeof end);
    MUST(mprotect(code, BYTES, PROT_READ | PROT_EXEC) == 0);
}

int main(void)
{
    unsigned char *code = map_pages(BYTES, PROT_READ | PROT_WRITE);
    unsigned char *other = map_pages(BYTES, PROT_READ | PROT_WRITE);
    write_code(other, 77);
    for (int round = 1; round <= 3; round++) {
        write_code(code, round);
        CHECK_EQ(((function *)code)(), round, "the code of this round");
        CHECK_EQ(((function *)other)(), 77, "code that stays");
    }
    return done();
}

/* Promise: F10 */
/* Promise: F10: a lot at once */
