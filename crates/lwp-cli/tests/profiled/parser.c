/* A calculator: expressions call terms call factors call expressions. */
#include <stdio.h>
#include <string.h>

static const char *at;

long expression(void);

__attribute__((noinline, noclone)) long number(void)
{
    long value = 0;
    while (*at >= '0' && *at <= '9')
        value = value * 10 + (*at++ - '0');
    return value;
}

__attribute__((noinline, noclone)) long factor(void)
{
    if (*at != '(')
        return number();
    at++;
    long value = expression();
    at++;
    return value;
}

__attribute__((noinline, noclone)) long term(void)
{
    long value = factor();
    while (*at == '*') {
        at++;
        value = value * factor() % 1000003;
    }
    return value;
}

__attribute__((noinline, noclone)) long expression(void)
{
    long value = term();
    while (*at == '+') {
        at++;
        value += term();
    }
    return value;
}

int main(void)
{
    static char text[4096] = "1";
    /* Ever deeper, and ever wider. */
    for (int i = 2; i < 40; i++) {
        char next[4096];
        snprintf(next, sizeof next, i % 3 ? "%1$d*(%2$s)+7" : "(%2$s+%1$d)*%1$d", i, text);
        strcpy(text, next);
    }
    long sum = 0;
    for (int round = 0; round < 200; round++) {
        at = text;
        sum += expression();
    }
    printf("%ld\n", sum);
    return 0;
}
