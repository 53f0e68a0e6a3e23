/* Works at the end of a stack of some 300 KiB, for SECONDS of its own CPU time.
 *
 *     deep SECONDS */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t result;

__attribute__((noinline, noclone)) static void works(double seconds) {
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end)
        for (int step = 0; step < 100000; step++)
            result = result * 2862933555777941757u + 1;
}

__attribute__((noinline, noclone)) static void descends(int depth, double seconds) {
    volatile char room[4096];
    room[0] = (char)depth;
    if (depth > 0)
        descends(depth - 1, seconds);
    else
        works(seconds);
    result += (uint64_t)room[0];
}

int main(int count, char **arguments) {
    descends(75, count > 1 ? atof(arguments[1]) : 1);
    return 0;
}
