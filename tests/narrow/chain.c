/* Signals, threads, fork, vfork and exec: run with the same program built for 64 and for 32 bits as its
 * arguments, which it executes in turn. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t got;
static int shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void handle(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    got += info->si_value.sival_int;
}

static void *work(void *step)
{
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&mutex);
        shared += (int)(long)step;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static int end_of_child(void)
{
    int status;
    wait(&status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "leaf") == 0) {
        printf("leaf of %d bits\n", (int)sizeof(void *) * 8);
        return 5;
    }
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42});
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("signal %d, threads %d\n", (int)got, shared);
    fflush(stdout);
    if (fork() == 0) {
        execv(argv[0], (char *[]){argv[0], "leaf", NULL});
        _exit(9);
    }
    printf("fork %d\n", end_of_child());
    fflush(stdout);
    if (vfork() == 0) {
        execv(argv[1], (char *[]){argv[1], "leaf", NULL});
        _exit(9);
    }
    printf("vfork %d\n", end_of_child());
    fflush(stdout);
    if (fork() == 0) {
        raise(SIGTERM);
        _exit(1);
    }
    printf("killed %d\n", end_of_child());
    fflush(stdout);
    execv(argv[2], (char *[]){argv[2], "leaf", NULL});
    return 3;
}
