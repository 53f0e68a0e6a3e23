//@ cflags: -O1
/* Calls with a timeout, while signals that are ignored arrive all the time: they end when their time is up, as if
 * there were no signals. The times are not compared; a call that starts over with every signal never ends. */
#include "check.h"
#include <linux/aio_abi.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>

static const struct timespec limit = {0, 120000000};
static int pair[2], listener;

static void waits(void)
{
    struct epoll_event event;
    int epoll = epoll_create1(0);
    CHECK_EQ(epoll_wait(epoll, &event, 1, 120), 0, "epoll_wait (%s)", strerror(errno));
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    CHECK_EQ(epoll_pwait(epoll, &event, 1, 120, &usr2), 0, "epoll_pwait (%s)", strerror(errno));
    close(epoll);
    CHECK(sigtimedwait(&usr2, NULL, &limit) == -1 && errno == EAGAIN, "sigtimedwait (%s)", strerror(errno));
}

static void sockets(void)
{
    char byte;
    struct msghdr message = {0};
    CHECK(recv(pair[0], &byte, 1, 0) == -1 && errno == EAGAIN, "recv (%s)", strerror(errno));
    CHECK(read(pair[0], &byte, 1) == -1 && errno == EAGAIN, "read (%s)", strerror(errno));
    CHECK(recvmsg(pair[0], &message, 0) == -1 && errno == EAGAIN, "recvmsg (%s)", strerror(errno));
    CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN, "accept (%s)", strerror(errno));
    static char bytes[1 << 16];
    while (send(pair[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    CHECK(send(pair[1], bytes, sizeof bytes, 0) == -1 && errno == EAGAIN, "send (%s)", strerror(errno));
}

static void others(void)
{
    int semaphore = semget(IPC_PRIVATE, 1, 0600);
    MUST(semaphore >= 0);
    struct sembuf down = {0, -1, 0};
    CHECK(semtimedop(semaphore, &down, 1, &limit) == -1 && errno == EAGAIN, "semtimedop (%s)", strerror(errno));
    semctl(semaphore, 0, IPC_RMID);
    aio_context_t context = 0;
    struct io_event event;
    MUST(syscall(SYS_io_setup, 4, &context) == 0);
    CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, &limit), 0, "io_getevents (%s)", strerror(errno));
    syscall(SYS_io_destroy, context);
}

static volatile int alarms;
static void on_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

/* A signal that is handled still ends such a call, whatever has come before. */
static void handled(void)
{
    struct epoll_event event;
    int epoll = epoll_create1(0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {{0, 0}, {0, 150000}};
    MUST(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(epoll_wait(epoll, &event, 1, -1) == -1 && errno == EINTR, "epoll_wait (%s)", strerror(errno));
    CHECK_EQ(alarms, 1, "the handler");
    close(epoll);
}

/* What the program sees of its own mask and of pending signals is what it has made of them. */
static void masks(void)
{
    sigset_t now;
    for (int i = 0; i < 200; i++) {
        MUST(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
        CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGCHLD), "blocked by nobody");
        MUST(sigpending(&now) == 0);
        CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGCHLD), "thrown away");
        usleep(500);
    }
    pid_t pid = fork();
    if (pid == 0) {
        MUST(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
        CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGCHLD), "inherited");
        _exit(check_failures != 0);
    }
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child");
}

int main(void)
{
    signal(SIGUSR1, SIG_IGN);
    pid_t parent = getpid(), sender = fork();
    MUST(sender >= 0);
    if (sender == 0) {
        static const int numbers[] = {SIGUSR1, SIGCHLD, SIGURG};
        for (int i = 0; getppid() == parent; i++) {
            kill(parent, numbers[i % 3]);
            usleep(i / 200 % 2 ? 300 : 8000);
        }
        _exit(0);
    }
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigprocmask(SIG_BLOCK, &usr2, NULL);
    struct timeval time = {0, 120000};
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(listener >= 0 && listen(listener, 1) == 0);
    MUST(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    MUST(setsockopt(pair[1], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0);
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    RUN(waits);
    RUN(sockets);
    RUN(others);
    RUN(masks);
    RUN(handled);
    kill(sender, SIGKILL);
    MUST(waitpid(sender, NULL, 0) == sender);
    return done();
}

/* Promise: F8, F17 */
