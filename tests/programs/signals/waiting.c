//@ cflags: -O1 -pthread
/* Synchronous acceptance: sigsuspend, sigwait, sigwaitinfo, sigtimedwait, signalfd, ppoll, pselect. */
#include "check.h"
#include <poll.h>
#include <sys/select.h>
#include <sys/signalfd.h>

static volatile int handled;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    handled++;
}

static sigset_t only(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}

static void later(int number, int milliseconds)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        usleep(milliseconds * 1000);
        kill(parent, number);
        _exit(0);
    }
}

static void reap(void)
{
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}

static void suspend(void)
{
    on_signal(SIGUSR1, handler, 0);
    sigset_t set = only(SIGUSR1), old;
    sigprocmask(SIG_BLOCK, &set, &old);
    handled = 0;
    raise(SIGUSR1);
    CHECK_EQ(handled, 0, "blocked");
    CHECK(sigsuspend(&old) == -1 && errno == EINTR, "sigsuspend with a pending signal");
    CHECK_EQ(handled, 1, "delivered");
    later(SIGUSR1, 20);
    CHECK(sigsuspend(&old) == -1 && errno == EINTR, "sigsuspend that waits");
    CHECK_EQ(handled, 2, "delivered");
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1), "the mask is back");
    sigprocmask(SIG_SETMASK, &old, NULL);
    reap();
}

static void accept_signals(void)
{
    sigset_t set = only(SIGUSR2);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int number = 0;
    raise(SIGUSR2);
    CHECK_EQ(sigwait(&set, &number), 0, "sigwait");
    CHECK_EQ(number, SIGUSR2, "which");
    later(SIGUSR2, 20);
    siginfo_t info;
    CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR2, "sigwaitinfo");
    CHECK_EQ(info.si_code, SI_USER, "si_code");
    struct timespec limit = {0, 20000000};
    reap();
    CHECK(sigtimedwait(&set, &info, &limit) == -1 && errno == EAGAIN, "sigtimedwait times out");
    for (int i = 0; i < 3; i++)
        sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 100 + i});
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(sigtimedwait(&set, &info, &limit), SIGRTMIN + 2, "sigtimedwait");
        CHECK_EQ(info.si_value.sival_int, 100 + i, "values in order");
    }
    reap();
}

static void by_descriptor(void)
{
    sigset_t set = only(SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    MUST(fd >= 0);
    later(SIGUSR2, 20);
    struct signalfd_siginfo info;
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info, "read");
    CHECK_EQ(info.ssi_signo, SIGUSR2, "signal");
    struct pollfd poll_set = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&poll_set, 1, 0), 0, "nothing more");
    raise(SIGUSR2);
    CHECK_EQ(poll(&poll_set, 1, 1000), 1, "readable");
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info, "read");
    close(fd);
    reap();
}

static void with_poll(void)
{
    on_signal(SIGUSR1, handler, SA_RESTART);
    sigset_t set = only(SIGUSR1), none;
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &set, NULL);
    handled = 0;
    raise(SIGUSR1);
    struct timespec limit = {10, 0};
    CHECK(ppoll(NULL, 0, &limit, &none) == -1 && errno == EINTR, "ppoll");
    CHECK_EQ(handled, 1, "handler");
    raise(SIGUSR1);
    CHECK(pselect(0, NULL, NULL, NULL, &limit, &none) == -1 && errno == EINTR, "pselect");
    CHECK_EQ(handled, 2, "handler");
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1), "the mask is back");
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void *waiter(void *argument)
{
    sigset_t set = only(SIGHUP);
    int number = 0, total = 0;
    while (total < 50 && sigwait(&set, &number) == 0)
        total++;
    *(int *)argument = total;
    return NULL;
}

static void in_thread(void)
{
    sigset_t set = only(SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t id;
    int total = 0;
    MUST(pthread_create(&id, NULL, waiter, &total) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_kill(id, SIGHUP);
        sigset_t pending;
        do {
            sched_yield();
            /* Thread-directed: seen as pending only by that thread; give it time. */
            sigpending(&pending);
            usleep(500);
        } while (sigismember(&pending, SIGHUP));
    }
    while (pthread_tryjoin_np(id, NULL) == EBUSY) {
        pthread_kill(id, SIGHUP);
        usleep(1000);
    }
    CHECK_EQ(total, 50, "signals taken by the thread");
}

int main(void)
{
    RUN(suspend);
    RUN(accept_signals);
    RUN(by_descriptor);
    RUN(with_poll);
    RUN(in_thread);
    return done();
}

/* Promise: F8 */
