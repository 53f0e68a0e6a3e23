/* Waits in calls that a stop of their thread ends with EINTR, in a thread each. Says which have been
   interrupted once its standard input ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const struct timespec three_seconds = {3, 0};
static int polled, watched, semaphores, connected[2];

static long waits_for_events(void)
{
    struct epoll_event event;
    return epoll_wait(polled, &event, 1, 3000);
}

static long waits_for_a_semaphore(void)
{
    struct sembuf down = {0, -1, 0};
    return semtimedop(semaphores, &down, 1, &three_seconds);
}

static long waits_for_changes(void)
{
    char events[4096];
    return read(watched, events, sizeof events);
}

static long receives_for_a_while(void)
{
    char byte;
    return recv(connected[0], &byte, 1, 0);
}

static long waits_for_a_signal(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    return sigtimedwait(&signals, 0, &three_seconds);
}

static long sleeps(void)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &three_seconds, 0);
    return errno == 0 ? 0 : -1;
}

static struct waiting {
    const char *name;
    long (*wait)(void);
    int interrupted;
} waiting[] = {
    {"epoll_wait", waits_for_events, 0},      {"semtimedop", waits_for_a_semaphore, 0},
    {"read of inotify", waits_for_changes, 0}, {"recv", receives_for_a_while, 0},
    {"sigtimedwait", waits_for_a_signal, 0},   {"clock_nanosleep", sleeps, 0},
};

static void *wait_again(void *of)
{
    struct waiting *own = of;
    for (;;)
        if (own->wait() == -1 && errno == EINTR)
            own->interrupted = 1;
    return 0;
}

int main(void)
{
    const struct timeval limit = {3, 0};
    int interrupted = 0;
    char byte;
    polled = epoll_create1(0);
    watched = inotify_init();
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    socketpair(AF_UNIX, SOCK_STREAM, 0, connected);
    setsockopt(connected[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (unsigned i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, wait_again, &waiting[i]);
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        ;
    semctl(semaphores, 0, IPC_RMID);
    for (unsigned i = 0; i < sizeof waiting / sizeof *waiting; i++)
        if (waiting[i].interrupted) {
            printf("%s was interrupted\n", waiting[i].name);
            interrupted = 1;
        }
    puts(interrupted ? "some were interrupted" : "none was interrupted");
    return 0;
}
