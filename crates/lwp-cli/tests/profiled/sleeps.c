/* Sleeps in several ways, and measures it with the clock of the wall.
 *
 *     sleeps TIMES
 *
 * Each function sleeps TIMES times for some milliseconds: by the clock, on a lock that another thread holds, for input of
 * a pipe, and in poll(2). Prints each with its nanoseconds. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void milliseconds(long count) {
    struct timespec time = {0, count * 1000000};
    nanosleep(&time, NULL);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int pipe_ends[2], requests[2];
static volatile uint64_t result;

__attribute__((noinline, noclone)) static void by_clock(void) {
    milliseconds(30);
    result++;
}

__attribute__((noinline, noclone)) static void for_lock(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    result++;
}

__attribute__((noinline, noclone)) static void for_input(void) {
    char byte;
    if (read(pipe_ends[0], &byte, 1) != 1)
        abort();
    result++;
}

__attribute__((noinline, noclone)) static void in_poll(void) {
    struct pollfd nothing = {pipe_ends[0], POLLIN, 0};
    poll(&nothing, 1, 25);
    result++;
}

/* Does what it is told to: holds the lock for a while, or writes after a while. */
static void *helper(void *unused) {
    pthread_setname_np(pthread_self(), "helper");
    char request;
    while (read(requests[0], &request, 1) == 1 && request != 'e') {
        if (request == 'l') {
            pthread_mutex_lock(&lock);
            if (write(pipe_ends[1], "l", 1) != 1)
                abort();
        }
        milliseconds(35);
        if (request == 'l')
            pthread_mutex_unlock(&lock);
        else if (write(pipe_ends[1], "x", 1) != 1)
            abort();
    }
    return unused;
}

static void ask(char request) {
    if (write(requests[1], &request, 1) != 1)
        abort();
    char byte;
    /* The lock is held by now. */
    if (request == 'l' && read(pipe_ends[0], &byte, 1) != 1)
        abort();
}

int main(int count, char **arguments) {
    int times = count > 1 ? atoi(arguments[1]) : 50;
    struct {
        const char *name;
        void (*sleep)(void);
        char request;
        uint64_t ns;
    } ways[] = {{"by_clock", by_clock, 0, 0}, {"for_lock", for_lock, 'l', 0}, {"for_input", for_input, 'i', 0}, {"in_poll", in_poll, 0, 0}};
    pthread_t thread;
    if (pipe(pipe_ends) != 0 || pipe(requests) != 0 || pthread_create(&thread, NULL, helper, NULL) != 0)
        return 1;
    for (int round = 0; round < times; round++)
        for (int way = 0; way < 4; way++) {
            if (ways[way].request)
                ask(ways[way].request);
            uint64_t before = clock_ns();
            ways[way].sleep();
            ways[way].ns += clock_ns() - before;
        }
    ask('e');
    pthread_join(thread, NULL);
    for (int way = 0; way < 4; way++)
        printf("%s %llu\n", ways[way].name, (unsigned long long)ways[way].ns);
    return 0;
}
