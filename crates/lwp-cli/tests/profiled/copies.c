/* Copies more than a first level holds by repeated string instructions, with signals coming in. Every
   line that is read misses. Prints how many lines were read, how many signals came, and whether the copies are
   right. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#define BYTES (64 << 10)
#define ROUNDS 400

static volatile sig_atomic_t signals;
static unsigned char from[BYTES] __attribute__((aligned(64))), to[BYTES] __attribute__((aligned(64)));

static void count(int signal) {
    (void)signal;
    signals++;
}

static void up(void *to, const void *from, unsigned long bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static void words(void *to, const void *from, unsigned long words) {
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 400}, {0, 400}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned at = 0; at < BYTES; at += 4096)
            from[at + round % 4096] = (unsigned char)(round + at / 4096);
        if (round & 1)
            words(to, from, BYTES / 8);
        else
            up(to, from, BYTES);
        for (unsigned at = 0; at < BYTES; at += 4096)
            wrong += to[at + round % 4096] != (unsigned char)(round + at / 4096);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d lines, %d signals, %d wrong\n", ROUNDS * (BYTES / 64), (int)signals, wrong);
    return 0;
}
