//@ cflags: -O1
/* Signals that are ignored, and children that end, cut nothing short: calls that move bytes move all of them, and waits
 * end when their time is up, whenever in it a signal comes. A signal that is handled does cut them short, and so does a
 * stop of job control. */
#include "check.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/socket.h>

enum { BYTES = 1 << 20, PIECE = 1 << 15 };
static char bytes[BYTES];

static void every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Takes all bytes slowly, each of which is the one that belongs there. */
static void take(int from)
{
    static char piece[PIECE];
    for (long got = 0; got < BYTES;) {
        usleep(3000);
        ssize_t count = read(from, piece, sizeof piece);
        if (count <= 0)
            _exit(1);
        for (ssize_t i = 0; i < count; i++)
            if (piece[i] != (char)((got + i) * 31 >> 4))
                _exit(2);
        got += count;
    }
    _exit(0);
}

static void give(int to)
{
    for (long sent = 0; sent < BYTES;) {
        usleep(3000);
        ssize_t count = write(to, bytes + sent, PIECE);
        if (count <= 0)
            _exit(1);
        sent += count;
    }
    _exit(0);
}

static void ends_well(pid_t pid, const char *what)
{
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "%s", what);
}

/* One end takes or gives slowly, the other moves everything by one call. */
static void move(int pair[2], const char *what, ssize_t (*call)(int), void (*slowly)(int))
{
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[1]);
        slowly(pair[0]);
    }
    close(pair[0]);
    every(7000);
    CHECK_EQ(call(pair[1]), BYTES, "%s", what);
    every(0);
    close(pair[1]);
    ends_well(pid, what);
}

static ssize_t by_write(int to)
{
    return write(to, bytes, BYTES);
}

static ssize_t by_send(int to)
{
    return send(to, bytes, BYTES, MSG_NOSIGNAL);
}

static ssize_t by_recv(int from)
{
    static char got[BYTES];
    ssize_t count = recv(from, got, BYTES, MSG_WAITALL);
    return memcmp(got, bytes, BYTES) == 0 ? count : -2;
}

static void connection(int pair[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (void *)&address, &length) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(pair[0], (void *)&address, length) == 0);
    pair[1] = accept(listener, NULL, NULL);
    MUST(pair[1] >= 0);
    close(listener);
}

static void transfers(void)
{
    int pair[2], swapped[2];
    MUST(pipe(swapped) == 0);
    pair[0] = swapped[0], pair[1] = swapped[1];
    move(pair, "write to a pipe", by_write, take);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    move(pair, "send", by_send, take);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    move(pair, "recv", by_recv, give);
    connection(pair);
    move(pair, "write to a connection", by_write, take);
    connection(pair);
    move(pair, "recv from a connection", by_recv, give);
}

/* SIGCHLD is ignored where nothing is said about it. */
static void children(void)
{
    int pair[2];
    MUST(pipe(pair) == 0);
    pid_t reader = fork();
    if (reader == 0) {
        close(pair[1]);
        take(pair[0]);
    }
    close(pair[0]);
    pid_t others[5];
    for (int i = 0; i < 5; i++)
        if ((others[i] = fork()) == 0) {
            usleep(10000 * (i + 1));
            _exit(0);
        }
    CHECK_EQ(write(pair[1], bytes, BYTES), BYTES, "write while children end");
    close(pair[1]);
    for (int i = 0; i < 5; i++)
        ends_well(others[i], "a child");
    ends_well(reader, "the reader");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double began;
static bool is_early(void)
{
    double time = now() - began;
    began = now();
    return time < 0.039;
}

/* Signals come shortly before the time of each wait is up. */
static void waits(void)
{
    struct timespec time = {0, 40000000};
    struct timeval limit = {0, 40000};
    int early = 0, interrupted = 0, pair[2], queue = epoll_create1(0);
    int semaphore = semget(IPC_PRIVATE, 1, 0600);
    MUST(semaphore >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    MUST(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &usr1, NULL) == 0);
    for (int i = 0; i < 12; i++) {
        static const long periods[] = {36000, 39000, 13000};
        struct epoll_event event;
        struct sembuf down = {0, -1, 0};
        char byte;
        every(periods[i % 3]);
        began = now();
        interrupted += epoll_wait(queue, &event, 1, 40) == -1 && errno == EINTR;
        early += is_early();
        interrupted += semtimedop(semaphore, &down, 1, &time) == -1 && errno == EINTR;
        early += is_early();
        interrupted += recv(pair[0], &byte, 1, 0) == -1 && errno == EINTR;
        early += is_early();
        interrupted += sigtimedwait(&usr1, NULL, &time) == -1 && errno == EINTR;
        early += is_early();
    }
    every(0);
    semctl(semaphore, 0, IPC_RMID);
    CHECK_EQ(interrupted, 0, "waits that were interrupted");
    CHECK_EQ(early, 0, "waits that ended before their time");
}

/* Nobody takes the rest: the call says how much was taken, and the next one why not. */
static void broken(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (int kind = 0; kind < 2; kind++) {
        int pair[2], swapped[2];
        if (kind == 0) {
            MUST(pipe(pair) == 0);
        } else {
            MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, swapped) == 0);
            pair[0] = swapped[0], pair[1] = swapped[1];
        }
        pid_t pid = fork();
        if (pid == 0) {
            static char piece[PIECE];
            close(pair[1]);
            usleep(20000);
            for (long got = 0; got < PIECE;) {
                ssize_t some = read(pair[0], piece, sizeof piece - got);
                if (some <= 0)
                    _exit(1);
                got += some;
            }
            _exit(0);
        }
        close(pair[0]);
        ssize_t count = write(pair[1], bytes, BYTES);
        CHECK(count > 0 && count < BYTES, "write returned %zd", count);
        CHECK(write(pair[1], bytes, 1) == -1 && errno == EPIPE, "write (%s)", strerror(errno));
        close(pair[1]);
        ends_well(pid, "the reader");
    }
    signal(SIGPIPE, SIG_DFL);
}

static volatile int alarms;
static void on_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

static void handled(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    int pair[2];
    MUST(pipe(pair) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    /* The first may come before the call. */
    every(20000);
    /* Nobody reads: the call returns the bytes that have found room. */
    ssize_t count = write(pair[1], bytes, BYTES);
    every(0);
    CHECK(count > 0 && count < BYTES, "write returned %zd", count);
    CHECK(alarms > 0, "the handler");
    signal(SIGALRM, SIG_IGN);
}

/* Waits until a process is in this state. */
static void comes_to(pid_t pid, char state)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (double end = patience(); now_seconds() < end; usleep(1000)) {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        char *name = strrchr(text, ')');
        if (name && name[2] == state)
            return;
    }
    _exit(3);
}

static void stops(void)
{
    struct epoll_event event;
    int queue = epoll_create1(0);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        comes_to(parent, 'S');
        kill(parent, SIGSTOP);
        comes_to(parent, 'T');
        kill(parent, SIGCONT);
        _exit(0);
    }
    CHECK(epoll_wait(queue, &event, 1, 20000) == -1 && errno == EINTR, "epoll_wait (%s)", strerror(errno));
    close(queue);
    ends_well(pid, "the child");
}

int main(void)
{
    for (long i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 31 >> 4);
    signal(SIGALRM, SIG_IGN);
    RUN(transfers);
    RUN(children);
    RUN(broken);
    RUN(waits);
    RUN(handled);
    RUN(stops);
    return done();
}

/* Promise: F8, F17 */
