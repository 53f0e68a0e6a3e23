/* Loops that go round as often as their source says. With an argument, the nested ones do so many times more. */
#include <stdint.h>
#include <stdlib.h>

static volatile uint64_t result;
static int numbers[100];
static unsigned char code[1000];

__attribute__((noinline, noclone)) static void nested(void) {
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 11; j++)
            for (int k = 0; k < 13; k++)
                result += (uint64_t)(i ^ k);
}

__attribute__((noinline, noclone)) static void collatz(uint64_t number) {
    while (number != 1) {
        number = number % 2 ? 3 * number + 1 : number / 2;
        result = number;
    }
}

__attribute__((noinline, noclone)) static int search(int wanted) {
    for (int at = 0; at < 100; at++)
        if (numbers[at] == wanted)
            return at;
    return -1;
}

__attribute__((noinline, noclone)) static void recursive(int depth) {
    for (int i = 0; i < 3; i++) {
        result += 1;
        if (depth > 0)
            recursive(depth - 1);
    }
}

__attribute__((noinline, noclone)) static void interprets(void) {
    uint64_t value = result;
    for (int at = 0; at < 1000; at++)
        switch (code[at]) {
        case 0: value += 3; break;
        case 1: value ^= 0x55; break;
        case 2: value *= 7; break;
        case 3: value -= value >> 3; break;
        case 4: value = ~value; break;
        case 5: value <<= 1; break;
        case 6: result = value; break;
        case 7: value |= 1; break;
        }
    result = value;
}

int main(int count, char **arguments) {
    long turns = count > 1 ? atol(arguments[1]) : 1;
    for (int at = 0; at < 100; at++)
        numbers[at] = at;
    for (int at = 0; at < 1000; at++)
        code[at] = (unsigned char)(at % 8);
    for (long turn = 0; turn < turns; turn++) {
        nested();
        nested();
    }
    collatz(27);
    result += (uint64_t)search(41);
    result += (uint64_t)search(1000);
    recursive(4);
    interprets();
    return 0;
}
