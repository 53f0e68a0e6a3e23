/* Computes in its second thread until standard input ends. The first thread has ended. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *compute(void *unused)
{
    struct pollfd input = {0, POLLIN, 0};
    for (volatile long work = 0; poll(&input, 1, 0) == 0;)
        for (int i = 0; i < 100000; i++)
            work++;
    puts("it went on");
    exit(0);
    return unused;
}

int main(void)
{
    pthread_t thread;
    puts("ready");
    fflush(stdout);
    pthread_create(&thread, 0, compute, 0);
    pthread_exit(0);
}
