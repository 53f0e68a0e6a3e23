/* Computes the same over and over, at first in peace and then with signals coming in, and makes accesses that
   fault. Prints how often the result was another. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#define WORDS (1 << 15)
#define TURNS 200000
#define SIGNALS 2000
#define ROUNDS 400

static volatile sig_atomic_t signals, faults;
static sigjmp_buf back;
static unsigned long words[WORDS];

static void count(int signal) {
    (void)signal;
    signals++;
}

static void leave(int signal) {
    (void)signal;
    faults++;
    siglongjmp(back, 1);
}

static unsigned long compute(void) {
    unsigned long x = 1, sum = 0;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = i;
    /* Counting down, an instruction that is executed twice changes the result. */
    for (long i = TURNS; i != 0; i--) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        unsigned long at = x >> 40 & (WORDS - 1);
        sum += words[at];
        words[at ^ 64] = sum;
    }
    return sum;
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = leave;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);

    unsigned long expected = compute();
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int other = 0;
    for (int round = 0; round < ROUNDS && signals < SIGNALS; round++)
        other += compute() != expected;
    for (volatile long i = 0; i < 500; i++)
        if (!sigsetjmp(back, 1))
            *(volatile long *)(i * 8 + 0x100) = 1;
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d results differ, %d faults\n", other, (int)faults);
    return signals == 0;
}
