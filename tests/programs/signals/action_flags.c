//@ cflags: -O1
/* SA_RESETHAND, SA_NODEFER, SA_NOCLDWAIT, SA_NOCLDSTOP, handlers without siginfo, what sigaction returns,
 * dispositions across exec and fork. */
#include "check.h"

static volatile int calls;
static void with_info(int number, siginfo_t *info, void *context)
{
    (void)context;
    calls++;
    CHECK_EQ(info->si_signo, number, "si_signo");
}
static void plain(int number)
{
    (void)number;
    calls++;
}

static void reset_hand(void)
{
    calls = 0;
    on_signal(SIGUSR1, with_info, SA_RESETHAND);
    raise(SIGUSR1);
    CHECK_EQ(calls, 1, "the handler ran");
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "the disposition is reset");
}

static void reset_dies(void)
{
    on_signal(SIGUSR1, with_info, SA_RESETHAND);
    raise(SIGUSR1);
    raise(SIGUSR1);
    say("not reached");
}

static void returned_action(void)
{
    struct sigaction set = {.sa_handler = plain, .sa_flags = SA_RESTART | SA_NODEFER}, old, now;
    sigemptyset(&set.sa_mask);
    sigaddset(&set.sa_mask, SIGHUP);
    sigaction(SIGUSR2, &set, NULL);
    sigaction(SIGUSR2, NULL, &now);
    CHECK(now.sa_handler == plain, "handler");
    CHECK_EQ(now.sa_flags & ~0x04000000, SA_RESTART | SA_NODEFER, "flags");
    CHECK(sigismember(&now.sa_mask, SIGHUP) && !sigismember(&now.sa_mask, SIGUSR2), "mask");
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR2, &ignore, &old);
    CHECK(old.sa_handler == plain, "old handler");
    calls = 0;
    raise(SIGUSR2);
    CHECK_EQ(calls, 0, "ignored");
    CHECK(sigaction(SIGKILL, &ignore, NULL) == -1 && errno == EINVAL, "SIGKILL");
    CHECK(sigaction(SIGSTOP, &ignore, NULL) == -1 && errno == EINVAL, "SIGSTOP");
    CHECK(sigaction(77, &ignore, NULL) == -1 && errno == EINVAL, "no such signal");
    signal(SIGUSR2, plain);
    raise(SIGUSR2);
    CHECK_EQ(calls, 1, "a handler without SA_SIGINFO");
}

static void no_zombies(void)
{
    struct sigaction action = {.sa_handler = plain, .sa_flags = SA_NOCLDWAIT | SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0)
            _exit(i);
    }
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "no status to collect");
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(3);
    CHECK(waitpid(pid, NULL, 0) == -1 && errno == ECHILD, "SIGCHLD ignored");
    signal(SIGCHLD, SIG_DFL);
}

static volatile int child_code, child_status;
static volatile pid_t child_pid;
static void on_child(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    calls++;
    child_code = info->si_code;
    child_status = info->si_status;
    child_pid = info->si_pid;
}

static void child_info(void)
{
    static const struct { int kill, code, status; } cases[] = {
        {0, CLD_EXITED, 5}, {SIGTERM, CLD_KILLED, SIGTERM}, {SIGKILL, CLD_KILLED, SIGKILL}};
    on_signal(SIGCHLD, on_child, SA_NOCLDSTOP);
    for (int i = 0; i < 3; i++) {
        sigset_t set, old;
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, &old);
        calls = 0;
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            if (cases[i].kill)
                raise(cases[i].kill);
            _exit(5);
        }
        while (calls == 0)
            sigsuspend(&old);
        sigprocmask(SIG_SETMASK, &old, NULL);
        CHECK_EQ(child_code, cases[i].code, "si_code");
        CHECK_EQ(child_status, cases[i].status, "si_status");
        CHECK_EQ(child_pid, pid, "si_pid");
        CHECK_EQ(waitpid(pid, NULL, 0), pid, "wait");
    }
    signal(SIGCHLD, SIG_DFL);
}

static void sender_info(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    calls = info->si_code;
    child_pid = info->si_pid;
}

static void sender(void)
{
    on_signal(SIGUSR1, sender_info, 0);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(calls, SI_USER, "kill");
    CHECK_EQ(child_pid, getpid(), "its sender");
    raise(SIGUSR1);
    CHECK_EQ(calls, SI_TKILL, "raise");
    sigqueue(getpid(), SIGUSR1, (union sigval){0});
    CHECK_EQ(calls, SI_QUEUE, "sigqueue");
    calls = 77;
    /* The alarm may go off at once where much else runs: it is not to come before the wait. */
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    on_signal(SIGALRM, sender_info, 0);
    alarm(1);
    sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    CHECK_EQ(calls, SI_KERNEL, "alarm");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        struct sigaction a, b, c;
        sigset_t mask;
        sigaction(SIGUSR1, NULL, &a);
        sigaction(SIGUSR2, NULL, &b);
        sigaction(SIGTRAP, NULL, &c);
        sigprocmask(SIG_BLOCK, NULL, &mask);
        CHECK(a.sa_handler == SIG_DFL, "handlers are reset by exec");
        CHECK(b.sa_handler == SIG_IGN, "ignored signals stay ignored");
        CHECK(c.sa_handler == SIG_IGN, "ignored SIGTRAP stays ignored");
        CHECK(sigismember(&mask, SIGWINCH), "the mask is inherited");
        return done();
    }
    RUN(reset_hand);
    CHECK_EQ(in_child(reset_dies), SIGUSR1, "the second signal is fatal");
    RUN(returned_action);
    RUN(no_zombies);
    RUN(child_info);
    RUN(sender);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGTRAP, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_SETMASK, &set, NULL);
    if (check_failures)
        return done();
    execl("/proc/self/exe", argv[0], "again", NULL);
    MUST(!"exec");
}

/* Promise: F8 */
