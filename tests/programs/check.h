/* What every test program uses: checks that name themselves, and output that survives fork, threads
 * and signal handlers. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int check_failures __attribute__((unused));

/* One line on standard output, in one write. Lines that begin with "# " are notes: not compared. */
__attribute__((unused, format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1024];
    int saved = errno;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(1, line, length) != length)
        _exit(99);
    errno = saved;
}

/* Counts a failure; true while it should be printed. A loop that fails all the time says so briefly. */
__attribute__((unused)) static bool check_failed(void)
{
    check_failures = check_failures + 1;
    if (check_failures == 9)
        say("... further failures are counted only");
    return check_failures < 9;
}

/* The text of the condition, then the given explanation. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition) && check_failed()) {                                                      \
            say("FAIL %s:%d: %s", __FILE_NAME__, __LINE__, #condition);                            \
            say("     " __VA_ARGS__);                                                              \
        }                                                                                          \
    } while (0)

/* Two integers, shown in hexadecimal when they differ. */
#define CHECK_EQ(got, want, ...)                                                                   \
    do {                                                                                           \
        unsigned long long got_ = (unsigned long long)(got);                                       \
        unsigned long long want_ = (unsigned long long)(want);                                     \
        if (got_ != want_ && check_failed()) {                                                     \
            say("FAIL %s:%d: %s is %#llx, want %#llx", __FILE_NAME__, __LINE__, #got, got_,        \
                want_);                                                                            \
            say("     " __VA_ARGS__);                                                              \
        }                                                                                          \
    } while (0)

/* A step without which the rest makes no sense. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            say("FAIL %s:%d: %s: %s", __FILE_NAME__, __LINE__, #condition, strerror(errno));       \
            _exit(98);                                                                             \
        }                                                                                          \
    } while (0)

/* Names the case before it runs, so that a crash or a hang has a place. */
#define RUN(function)                                                                              \
    do {                                                                                           \
        say("%s", #function);                                                                      \
        function();                                                                                \
    } while (0)

/* The value of main. */
__attribute__((unused)) static int done(void)
{
    if (check_failures) {
        say("failed checks: %d", check_failures);
        return 1;
    }
    say("ok");
    return 0;
}

__attribute__((unused)) static void on_signal(int number, void (*handler)(int, siginfo_t *, void *),
                                              int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    MUST(sigaction(number, &action, NULL) == 0);
}

__attribute__((unused)) static greg_t *regs_of(void *context)
{
    return ((ucontext_t *)context)->uc_mcontext.gregs;
}

__attribute__((unused)) static void *map_pages(size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* A child counts its own failures only. */
__attribute__((unused)) static pid_t checked_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        check_failures = 0;
    return pid;
}
#define fork() checked_fork()

/* Runs a function in a child and returns the wait status. */
__attribute__((unused)) static int in_child(void (*function)(void))
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        function();
        _exit(check_failures ? 97 : 0);
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0)
        MUST(errno == EINTR);
    return status;
}

__attribute__((unused)) static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* When to give an event up that is waited for: later than it takes on any machine, however busy. */
__attribute__((unused)) static double patience(void) { return now_seconds() + 60; }

#endif
