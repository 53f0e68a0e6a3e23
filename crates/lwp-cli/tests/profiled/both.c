/* Takes CPU time in functions of its own, a number of times each, and measures it with the clock of its thread.
 *
 *     both TIMES [FILE]
 *
 * `computes` waits for nothing, and `chases` for memory at nearly every instruction. Prints each with its calls and its
 * nanoseconds. With FILE it runs `second_only` as well if there is that file, and otherwise creates it and runs
 * `first_only`: two runs differ. With FILE `-` it copies its standard input to standard output instead. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t result;

static uint64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#define WORK(name, steps)                                                  \
    __attribute__((noinline, noclone)) static void name(void) {            \
        uint64_t value = 1;                                                \
        for (uint64_t step = 0; step < steps; step++)                      \
            value = value * 2862933555777941757u + step;                   \
        result = value;                                                    \
    }
WORK(computes, 1000000u)
WORK(first_only, 100000000u)
WORK(second_only, 150000000u) /* otherwise compilers make one of the two */

/* A ring through 64 MiB in an order that no prefetcher guesses. */
enum { PLACES = 8 << 20 };
static uint64_t *next;

__attribute__((noinline)) static void make_ring(void) {
    next = malloc(PLACES * sizeof *next);
    for (uint64_t at = 0; at < PLACES; at++)
        next[at] = at;
    uint64_t random = 1;
    for (uint64_t at = PLACES - 1; at > 0; at--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t other = (random >> 33) % at, mine = next[at];
        next[at] = next[other];
        next[other] = mine;
    }
}

__attribute__((noinline, noclone)) static void chases(void) {
    uint64_t at = result % PLACES;
    for (int step = 0; step < 20000; step++)
        at = next[at];
    result = at;
}

static void measure(const char *name, void (*work)(void), int times) {
    uint64_t before = clock_ns();
    for (int round = 0; round < times; round++)
        work();
    printf("%s %d %llu\n", name, times, (unsigned long long)(clock_ns() - before));
}

static void copy(void) {
    char bytes[4096];
    for (ssize_t got; (got = read(0, bytes, sizeof bytes)) > 0;)
        if (write(1, bytes, (size_t)got) != got)
            exit(1);
}

int main(int count, char **arguments) {
    int times = count > 1 ? atoi(arguments[1]) : 100;
    if (count > 2 && strcmp(arguments[2], "-") == 0) {
        copy();
        computes();
        return 0;
    }
    make_ring();
    measure("computes", computes, times);
    measure("chases", chases, times);
    if (count < 3)
        return 0;
    if (access(arguments[2], F_OK) == 0) {
        second_only();
        return 3;
    }
    close(open(arguments[2], O_CREAT | O_WRONLY, 0600));
    first_only();
    return 0;
}
