/* Two threads are sent a signal each, over and over, which they take only in sigsuspend and in ppoll.
   Each signal has to end one call. Says after the end of standard input whether all did. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned woken[2];

static void nothing(int signal)
{
    (void)signal;
}

static void *wait_for_signals(void *number)
{
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, SIGUSR1);
    for (;;) {
        if (number == 0)
            sigsuspend(&others);
        else
            ppoll(0, 0, 0, &others);
        woken[(long)number]++;
    }
    return 0;
}

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    const struct timespec pause = {0, 200000};
    pthread_t threads[2];
    sigset_t wakes;
    signal(SIGUSR1, nothing);
    sigemptyset(&wakes);
    sigaddset(&wakes, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wakes, 0);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, wait_for_signals, (void *)i);
    puts("ready");
    fflush(stdout);
    for (unsigned sent = 1; poll(&input, 1, 0) == 0; sent++)
        for (int i = 0; i < 2; i++) {
            pthread_kill(threads[i], SIGUSR1);
            for (unsigned waited = 0; woken[i] != sent; waited++) {
                if (waited == 100000) {
                    puts("a wake-up was lost");
                    return 0;
                }
                nanosleep(&pause, 0);
            }
        }
    puts("all woke");
    return 0;
}
