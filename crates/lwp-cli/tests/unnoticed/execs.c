/* Executes itself over and over beside two threads, which that ends, until standard input ends. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *sleep_on(void *unused)
{
    for (;;)
        usleep(100);
    return unused;
}

int main(int argc, char **argv)
{
    struct pollfd input = {0, POLLIN, 0};
    char *again[] = {argv[0], "again", 0};
    pthread_t thread;
    if (argc == 1) {
        puts("ready");
        fflush(stdout);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, 0, sleep_on, 0);
    for (volatile int work = 0; work < 300000; work++)
        ;
    if (poll(&input, 1, 0) != 0) {
        puts("it went on");
        return 0;
    }
    execv(argv[0], again);
    return 1;
}
