//@ variants: pie static
/* A file's code of which little has been executed is unmapped, and other code takes its place: what has been
 * translated ahead of time must go too. */
#include "check.h"

#define BLOCKS 20

static volatile uint64_t spun;

static unsigned char *jump_to(unsigned char *at, const char *opcode, int length, unsigned char *target)
{
    memcpy(at, opcode, length);
    int32_t distance = target - (at + length + 4);
    memcpy(at + length, &distance, 4);
    return at + length + 4;
}

/* `test edi, edi; jz end; BLOCKS times (test esi, esi; jnz block); end: mov eax, 1; ret`, where every block is
 * `call one; nop; mov eax, 1; ret`; or, at the places that the calls return to, `mov eax, 2; ret`. */
static int make_file(bool second)
{
    static unsigned char code[8192];
    memset(code, 0x90, sizeof code);
    unsigned char *at = code, *blocks = code + 2048, *one = code + 4096, *end = code + 8 + 8 * BLOCKS;
    memcpy(one, "\xb8\x01\x00\x00\x00\xc3", 6);
    memcpy(end, "\xb8\x01\x00\x00\x00\xc3", 6);
    at = jump_to(at, "\x85\xff\x0f\x84", 4, end);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char *block = blocks + 32 * i;
        at = jump_to(at, "\x85\xf6\x0f\x85", 4, block);
        jump_to(block, "\xe8", 1, one);
        memcpy(block + 5, "\x0f\x1f\x00\xb8\x01\x00\x00\x00\xc3", 9);
        if (second)
            memcpy(block + 5, "\xb8\x02\x00\x00\x00\xc3", 6);
    }
    int file = open(second ? "second.code" : "first.code", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0 && write(file, code, sizeof code) == sizeof code);
    return file;
}

static void replace(void *place, int first, int second)
{
    unsigned char *code = mmap(place, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, first, 0);
    MUST(code == place);
    CHECK_EQ(((int (*)(int))code)(0), 1, "the first file");
    /* Time to translate ahead. */
    for (int i = 0; i < 2000000; i++)
        spun++;
    MUST(munmap(code, 8192) == 0);
    code = mmap(place, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, second, 0);
    MUST(code == place);
    int wrong = 0;
    for (int i = 0; i < BLOCKS; i++)
        wrong += ((int (*)(void))(code + 2048 + 32 * i + 5))() != 2;
    CHECK_EQ(wrong, 0, "places where the first file is executed");
    MUST(munmap(code, 8192) == 0);
}

int main(void)
{
    char *place = map_pages(1 << 20, PROT_NONE);
    int first = make_file(false), second = make_file(true);
    for (int round = 0; round < 40; round++)
        replace(place + 16384 * round, first, second);
    unlink("first.code");
    unlink("second.code");
    return done();
}

/* Promise: F10 */
/* Promise: F10: a file's code after munmap */
