/* Threads that work and wait in turns, each with calls that a stop could interrupt.
 *
 *     uninterrupted TURNS
 *
 * Prints one line for each kind of call: its name, how often it was made, and how often it did not do what it does
 * without anybody who traces the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP, PIPE, BULK, EPOLL, SEMAPHORE, SIGNAL, KINDS };
static const char *const names[KINDS] = {"sleep", "pipe", "bulk", "epoll", "semaphore", "signal"};
static long made[KINDS], wrong[KINDS];
static int turns, ends[2], bulk[2];
static volatile sig_atomic_t alarms;
static __thread volatile uint64_t result;

static void work(void) {
    for (int step = 0; step < 200000; step++)
        result = result * 2862933555777941757u + 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(int kind, int right) {
    __atomic_add_fetch(&made[kind], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&wrong[kind], !right, __ATOMIC_RELAXED);
}

static void *sleeps(void *unused) {
    for (int turn = 0; turn < turns; turn++) {
        work();
        double start = now();
        struct timespec time = {0, 2000000};
        int failed = nanosleep(&time, NULL);
        check(SLEEP, failed == 0 && now() - start >= 0.002);
    }
    return unused;
}

static void *writes(void *unused) {
    for (int turn = 0; turn < turns; turn++) {
        work();
        char byte = 'x';
        check(PIPE, write(ends[1], &byte, 1) == 1);
    }
    return unused;
}

static void *reads(void *unused) {
    for (int turn = 0; turn < turns; turn++) {
        char byte = 0;
        check(PIPE, read(ends[0], &byte, 1) == 1 && byte == 'x');
        work();
    }
    return unused;
}

/* A write that blocks until somebody reads moves all of its bytes. */
static void *writes_much(void *unused) {
    static char bytes[1 << 20];
    for (int turn = 0; turn < turns; turn++)
        check(BULK, write(bulk[1], bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    close(bulk[1]);
    return unused;
}

static void *reads_much(void *unused) {
    static char bytes[4096];
    long all = 0;
    for (ssize_t got; (got = read(bulk[0], bytes, sizeof bytes)) != 0; all += got)
        if (got < 0)
            break;
    check(BULK, all == (long)turns << 20);
    return unused;
}

static void *polls(void *unused) {
    int epoll = epoll_create1(0);
    for (int turn = 0; turn < turns; turn++) {
        work();
        double start = now();
        struct epoll_event event;
        int ready = epoll_wait(epoll, &event, 1, 3);
        check(EPOLL, ready == 0 && now() - start >= 0.0029);
    }
    return unused;
}

static void *waits(void *unused) {
    int semaphore = semget(IPC_PRIVATE, 1, 0600);
    for (int turn = 0; turn < turns; turn++) {
        work();
        struct sembuf down = {0, -1, 0};
        struct timespec time = {0, 2000000};
        check(SEMAPHORE, semtimedop(semaphore, &down, 1, &time) == -1 && errno == EAGAIN);
    }
    semctl(semaphore, 0, IPC_RMID);
    return unused;
}

static void handler(int signal) {
    (void)signal;
    alarms++;
}

static void *signalled(void *unused) {
    sigset_t set, empty;
    sigemptyset(&empty);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    for (int turn = 0; turn < turns; turn++) {
        work();
        sig_atomic_t before = alarms;
        pthread_kill(pthread_self(), SIGALRM);
        sigsuspend(&empty);
        /* An ignored signal ends no call. */
        pthread_kill(pthread_self(), SIGUSR2);
        check(SIGNAL, alarms == before + 1);
    }
    return unused;
}

int main(int count, char **arguments) {
    turns = count > 1 ? atoi(arguments[1]) : 100;
    if (pipe(ends) != 0 || pipe(bulk) != 0)
        return 1;
    signal(SIGUSR2, SIG_IGN);
    signal(SIGALRM, handler);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    void *(*const all[])(void *) = {sleeps, writes, reads, writes_much, reads_much, polls, waits, signalled};
    enum { THREADS = sizeof all / sizeof *all };
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, all[at], NULL) != 0)
            return 1;
    /* A child that ends tells its maker, whatever else goes on. */
    for (int turn = 0; turn < 20; turn++) {
        pid_t child = fork();
        if (child == 0)
            _exit(turn);
        int status;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != turn)
            return 1;
    }
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s %ld %ld\n", names[kind], made[kind], wrong[kind]);
    return 0;
}
