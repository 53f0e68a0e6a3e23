//@ compare: expectation
//@ cflags: -O1
/* A program that wants to be traced, which fails with EPERM on the virtual CPU (documented) and works natively, and one
 * that attaches to another. Nothing may hang or die. */
#include "check.h"
#include <sys/ptrace.h>

static int outcome;

static void trace_me(void)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(errno == EPERM ? 50 : 51);
        raise(SIGSTOP);
        _exit(52);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status)) {
        CHECK_EQ(WEXITSTATUS(status), 50, "PTRACE_TRACEME is refused with EPERM");
        outcome = 1;
        return;
    }
    CHECK_EQ(WSTOPSIG(status), SIGSTOP, "a traced stop");
    MUST(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 52 << 8, "the traced child ends");
}

static void attach(void)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        usleep(50000);
        _exit(53);
    }
    int status;
    CHECK(ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0, "%s", strerror(errno));
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSTOPPED(status), "attached: %#x", status);
    MUST(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 53 << 8, "the child ends as it would");
}

int main(void)
{
    RUN(trace_me);
    RUN(attach);
    say("# %s", outcome ? "refused" : "allowed");
    return done();
}

/* Promise: L5 */
