/* Functions of the C library of which the linker chooses a variant, and tail calls. */
#include <stdio.h>
#include <string.h>

__attribute__((noipa)) static int square(int n)
{
    __asm__ volatile("");
    return n * n;
}

/* Becomes a direct jump. */
__attribute__((noipa)) static int straight(int n)
{
    __asm__ volatile("");
    return square(n + 1);
}

/* Becomes an indirect jump by a register. */
__attribute__((noipa)) static int by_register(int (*f)(int), int n)
{
    __asm__ volatile("");
    return f(n + 1);
}

/* Becomes an indirect jump through a word that the program changes. */
static int (*volatile hook)(int);
__attribute__((noipa)) static int by_word(int n)
{
    __asm__ volatile("");
    return hook(n + 1);
}

__attribute__((noipa)) static int twice(int n)
{
    __asm__ volatile("");
    return 2 * n;
}

int main(int argc, char **argv)
{
    volatile unsigned long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += strlen(argv[0]);
    for (int i = 0; i < 500; i++)
        sum += strcmp(argv[0], argv[argc - 1]);
    for (int i = 0; i < 300; i++)
        sum += straight(i);
    for (int i = 0; i < 70; i++)
        sum += by_register(square, i);
    for (int i = 0; i < 40; i++) {
        hook = i % 4 ? square : twice;
        sum += by_word(i);
    }
    printf("%lu\n", sum);
    return 0;
}
