/* A program whose file goes while it runs: "unlink", or "replace OTHER". */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) long busy_afterwards(long n) {
    volatile long sum = 0;
    for (long i = 0; i < n; i++) sum += i;
    return sum;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "unlink") && unlink(argv[0])) return 8;
    if (argc > 2 && !strcmp(argv[1], "replace") && rename(argv[2], argv[0])) return 9;
    return busy_afterwards(200000) == 7;
}
