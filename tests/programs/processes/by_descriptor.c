//@ cflags: -O1
/* Processes by descriptors: waited for, polled, signalled, and asked for a descriptor of theirs. */
#include "check.h"
#include <poll.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int opened(pid_t pid, int flags) { return syscall(SYS_pidfd_open, pid, flags); }

static int sent(int fd, int signal, siginfo_t *info, int flags)
{
    return syscall(SYS_pidfd_send_signal, fd, signal, info, flags);
}

static int taken(int fd, int theirs) { return syscall(SYS_pidfd_getfd, fd, theirs, 0); }

static void of_a_child(void)
{
    int ends[2];
    char byte;
    MUST(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 1 ? 9 : 1);
    }
    int fd = opened(pid, 0);
    if (fd < 0) {
        say("# no pidfd_open: %s", strerror(errno));
        _exit(0);
    }
    siginfo_t info = {0};
    say("lives: %d %d", waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG), info.si_pid);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    say("polled: %d, signal 0: %d", poll(&polled, 1, 0), sent(fd, 0, NULL, 0));
    int copy = taken(fd, ends[0]);
    say("taken: %d, close on exec %d", copy >= 0, fcntl(copy, F_GETFD));
    MUST(write(ends[1], "x", 1) == 1);
    int ready = poll(&polled, 1, 60000);
    say("polled: %d %#x", ready, polled.revents);
    int result = waitid(P_PIDFD, fd, &info, WEXITED);
    say("waited for: %d, code %d, status %d, pid %d", result, info.si_code, info.si_status, info.si_pid == pid);
    CHECK(sent(fd, SIGTERM, NULL, 0) == -1 && errno == ESRCH, "signalled (%s)", strerror(errno));
    CHECK(taken(fd, 0) == -1 && errno == ESRCH, "taken (%s)", strerror(errno));
    CHECK(opened(pid, 0) == -1 && errno == ESRCH, "opened (%s)", strerror(errno));
    CHECK(waitid(P_PIDFD, fd, &info, WEXITED) == -1 && errno == ECHILD, "waited for (%s)", strerror(errno));
    close(fd), close(copy), close(ends[0]), close(ends[1]);
}

static void killed(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    int fd = opened(pid, 0);
    siginfo_t info = {0};
    say("signalled: %d", sent(fd, SIGTERM, NULL, 0));
    int result = waitid(P_PIDFD, fd, &info, WEXITED);
    say("ended: %d, code %d, status %d", result, info.si_code, info.si_status);
    close(fd);
}

static void of_itself(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = opened(getpid(), 0);
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE}, got = {0};
    info.si_value.sival_int = 42;
    say("queued: %d", sent(fd, SIGUSR1, &info, 0));
    int number = sigwaitinfo(&set, &got);
    say("taken: %d, code %d, value %d", number == SIGUSR1, got.si_code, got.si_value.sival_int);
    CHECK(sent(fd, SIGUSR2, &info, 0) == -1 && errno == EINVAL, "another signal (%s)", strerror(errno));
    CHECK(opened(getpid(), 1 << 20) == -1 && errno == EINVAL, "flags (%s)", strerror(errno));
    CHECK(sent(0, 0, NULL, 0) == -1 && errno == EBADF, "no process (%s)", strerror(errno));
    close(fd);
}

int main(void)
{
    RUN(of_a_child);
    RUN(killed);
    RUN(of_itself);
    return done();
}

/* Promise: F9 */
