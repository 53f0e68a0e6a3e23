//@ cflags: -O1
/* Signals that are ignored, by default or on purpose, are not noticed by any system call, not even by
 * those that never restart. A tracer sees them all the same. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

int main(void)
{
    int ends[2];
    signal(SIGUSR1, SIG_IGN);
    MUST(pipe(ends) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t parent = getpid(), sender = fork();
    MUST(sender >= 0);
    if (sender == 0) {
        static const int numbers[] = {SIGUSR1, SIGWINCH, SIGURG, SIGCHLD, SIGCONT};
        for (int i = 0; getppid() == parent; i++) {
            kill(parent, numbers[i % 5]);
            usleep(3000);
        }
        _exit(0);
    }
    int epoll = epoll_create1(0);
    struct epoll_event event;
    struct timespec limit = {0, 50000000};
    struct pollfd poll_set = {.fd = ends[0], .events = POLLIN};
    siginfo_t info;
    int word = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(epoll_wait(epoll, &event, 1, 50), 0, "epoll_wait (%s)", strerror(errno));
        CHECK(sigtimedwait(&set, &info, &limit) == -1 && errno == EAGAIN, "sigtimedwait (%s)", strerror(errno));
        CHECK_EQ(poll(&poll_set, 1, 50), 0, "poll (%s)", strerror(errno));
        CHECK_EQ(nanosleep(&limit, NULL), 0, "nanosleep (%s)", strerror(errno));
        CHECK(syscall(SYS_futex, &word, 0, 0, &limit, NULL, 0) == -1 && errno == ETIMEDOUT, "futex (%s)", strerror(errno));
        struct timeval wait = {0, 50000};
        fd_set reads;
        FD_ZERO(&reads);
        FD_SET(ends[0], &reads);
        CHECK_EQ(select(ends[0] + 1, &reads, NULL, NULL, &wait), 0, "select (%s)", strerror(errno));
    }
    kill(sender, SIGKILL);
    MUST(waitpid(sender, NULL, 0) == sender);
    close(ends[0]), close(ends[1]), close(epoll);
    return done();
}

/* Promise: F8, F17 */
