//@ cflags: -O1
/* A signal during a blocking system call: EINTR without SA_RESTART, a transparent restart with it, and
 * the calls that never restart. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>

static volatile int handled;
static int write_end = -1;
static volatile int write_at;

/* The pipe gets its byte only at the signal `write_at`, so a restarted read is seen to wait again. */
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    handled++;
    if (handled == write_at && write(write_end, "x", 1) != 1)
        _exit(97);
}

static int ends[2];
static struct itimerval off;

static void start(int flags, int at)
{
    MUST(pipe(ends) == 0);
    write_end = ends[1];
    write_at = at;
    handled = 0;
    on_signal(SIGALRM, handler, flags);
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void stop(void)
{
    setitimer(ITIMER_REAL, &off, NULL);
    close(ends[0]);
    close(ends[1]);
}

static void read_interrupted(void)
{
    char byte;
    int one_signal = 0;
    start(0, 0);
    /* On a busy machine a signal may come between two calls as well. */
    for (int i = 0; i < 200 && one_signal < 2; i++) {
        int before = handled;
        CHECK_EQ(read(ends[0], &byte, 1), -1, "read is interrupted");
        CHECK_EQ(errno, EINTR, "errno");
        one_signal += handled - before == 1;
    }
    CHECK_EQ(one_signal, 2, "one signal per call");
    stop();
}

static void read_restarted(void)
{
    char byte = 0;
    start(SA_RESTART, 3);
    CHECK_EQ(read(ends[0], &byte, 1), 1, "read goes on");
    CHECK_EQ(byte, 'x', "and gets its byte");
    CHECK(handled >= 3, "after %d signals", handled);
    stop();
}

static void never_restarted(void)
{
    struct timespec long_time = {20, 0}, left;
    struct pollfd poll_set = {.events = POLLIN};
    start(SA_RESTART, 0);
    CHECK(nanosleep(&long_time, &left) == -1 && errno == EINTR, "nanosleep");
    CHECK(left.tv_sec >= 1 && left.tv_sec < 20, "time left: %ld s", (long)left.tv_sec);
    poll_set.fd = ends[0];
    CHECK(poll(&poll_set, 1, 20000) == -1 && errno == EINTR, "poll");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval wait = {20, 0};
    CHECK(select(ends[0] + 1, &set, NULL, NULL, &wait) == -1 && errno == EINTR, "select");
    int epoll = epoll_create1(0);
    struct epoll_event event;
    CHECK(epoll_wait(epoll, &event, 1, 20000) == -1 && errno == EINTR, "epoll_wait");
    close(epoll);
    CHECK(pause() == -1 && errno == EINTR, "pause");
    CHECK(usleep(20000000) == -1 && errno == EINTR, "usleep");
    sigset_t nothing;
    sigemptyset(&nothing);
    CHECK(sigsuspend(&nothing) == -1 && errno == EINTR, "sigsuspend");
    stop();
}

static void wait_restarted(void)
{
    start(SA_RESTART, 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        setitimer(ITIMER_REAL, &off, NULL);
        usleep(100000);
        _exit(7);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child, "waitpid goes on");
    CHECK_EQ(status, 7 << 8, "status");
    CHECK(handled >= 3, "after %d signals", handled);
    stop();
}

static void write_restarted(void)
{
    start(SA_RESTART, 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        setitimer(ITIMER_REAL, &off, NULL);
        close(ends[1]);
        static char chunk[4096];
        long total = 0;
        unsigned sum = 0;
        ssize_t got;
        while ((got = read(ends[0], chunk, sizeof chunk)) > 0) {
            for (int i = 0; i < got; i++)
                sum = sum * 31 + (unsigned char)chunk[i];
            total += got;
            usleep(1000);
        }
        say("read %ld bytes, sum %08x", total, sum);
        _exit(0);
    }
    static char data[400000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = i * i >> 7;
    size_t written = 0;
    while (written < sizeof data) {
        ssize_t part = write(ends[1], data + written, sizeof data - written);
        MUST(part > 0);
        written += part;
    }
    stop();
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    CHECK_EQ(status, 0, "reader");
}

static void sleep_is_as_long(void)
{
    /* A restarted relative sleep must not begin anew. */
    start(SA_RESTART, 0);
    double begin = now_seconds();
    struct timespec left = {0, 200000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
    double took = now_seconds() - begin;
    CHECK(took >= 0.199 && took < 20, "slept %.3f s", took);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    begin = until.tv_sec + until.tv_nsec / 1e9;
    until.tv_nsec += 200000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    took = now_seconds() - begin;
    CHECK(took >= 0.19 && took < 20, "slept %.3f s until a time", took);
    stop();
}

int main(void)
{
    RUN(read_interrupted);
    RUN(read_restarted);
    RUN(never_restarted);
    RUN(wait_restarted);
    RUN(write_restarted);
    RUN(sleep_is_as_long);
    return done();
}

/* Promise: F8 */
