//@ variants: static
//@ cflags: -O1
/* Generated functions with branches, called much more often than they are changed. */
#include "check.h"

enum { FUNCTIONS = 40, SIZE = 160 };

static unsigned char *pages;

static void put(int number, int step)
{
    static const unsigned char template[] = {
        0x31, 0xc0,                   /* xor eax, eax */
        0x83, 0xc0, 0,                /* again: add eax, step */
        0xa8, 1,                      /* test al, 1 */
        0x74, 4,                      /* jz even */
        0x48, 0x8d, 0x40, 0,          /* lea rax, [rax + 0] */
        0xff, 0xcf,                   /* even: dec edi */
        0x75, 0xf1,                   /* jnz again */
        0x73, 1,                      /* jnc end */
        0x90,                         /* nop */
        0xc3,                         /* end: ret */
    };
    memcpy(pages + number * SIZE, template, sizeof template);
    pages[number * SIZE + 4] = step;
}

int main(void)
{
    pages = map_pages(FUNCTIONS * SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int number = 0; number < FUNCTIONS; number++)
        put(number, number);
    for (int round = 0; round < 60; round++) {
        for (int number = 0; number < FUNCTIONS; number++) {
            int step = number == round % FUNCTIONS && round >= FUNCTIONS ? 1 : number;
            int (*call)(int) = (int (*)(int))(pages + number * SIZE);
            CHECK_EQ(call(round + 1), (round + 1) * step, "the sum of the steps");
        }
        if (round >= FUNCTIONS)
            put(round % FUNCTIONS, round % FUNCTIONS);
        if (round + 1 >= FUNCTIONS)
            put((round + 1) % FUNCTIONS, 1);
    }
    return done();
}
