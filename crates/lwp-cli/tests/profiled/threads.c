/* Threads that share code, a child process, and signals. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

static void handler(int signal)
{
    seen += signal != 0;
}

__attribute__((noinline)) long spin(long rounds)
{
    long sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += i ^ (sum >> 3);
    return sum;
}

static void *work(void *rounds)
{
    return (void *)spin((long)rounds);
}

int main(void)
{
    pthread_t threads[3];
    signal(SIGUSR1, handler);
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, work, (void *)((i + 1) * 10000));
    for (int i = 0; i < 20; i++)
        raise(SIGUSR1);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    pid_t child = fork();
    if (child == 0)
        _exit(spin(5000) == 0);
    waitpid(child, 0, 0);
    printf("%d\n", (int)seen);
    return 0;
}
