//@ cflags: -O1
/* A terminal of its own: sessions, the foreground group, Ctrl-C, Ctrl-Z and Ctrl-\ typed at it, window
 * size changes, background reads and writes, hang-up. */
#include "check.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master;
static char seen[65536];
static size_t length;

/* Reads what the terminal says until `text` appears, or until a time. */
static bool appears(const char *text, double end)
{
    size_t from = 0;
    while (now_seconds() < end) {
        char *found = strstr(seen + from, text);
        if (found) {
            size_t used = found - seen + strlen(text);
            memmove(seen, seen + used, length - used + 1);
            length -= used;
            return true;
        }
        struct pollfd poll_set = {.fd = master, .events = POLLIN};
        if (poll(&poll_set, 1, 100) > 0) {
            ssize_t got = read(master, seen + length, sizeof seen - length - 1);
            if (got <= 0)
                break;
            length += got;
            seen[length] = 0;
        }
    }
    return false;
}

static bool expect(const char *text)
{
    if (appears(text, patience()))
        return true;
    say("FAIL did not see \"%s\" but \"%s\"", text, seen);
    check_failures = check_failures + 1;
    return false;
}

static void type(const char *text)
{
    MUST(write(master, text, strlen(text)) == (ssize_t)strlen(text));
}

static volatile int interrupts, resizes;
static void on_int(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    if (number == SIGWINCH)
        resizes++;
    else
        interrupts++;
}

static void in_terminal(void)
{
    CHECK(isatty(0) && isatty(1), "a terminal");
    CHECK_EQ(getsid(0), getpid(), "leader of a session");
    CHECK_EQ(tcgetpgrp(0), getpgrp(), "in the foreground");
    on_signal(SIGINT, on_int, 0);
    on_signal(SIGWINCH, on_int, SA_RESTART);
    say("ready");
    char line[100];
    CHECK(read(0, line, sizeof line) == -1 && errno == EINTR, "a read is interrupted");
    ssize_t got;
    do {
        /* Once more for each: a Ctrl-C throws away what has been written and not been read. */
        say("interrupted %s", interrupts > 0 ? "by a handler" : "by nothing");
        got = read(0, line, sizeof line);
    } while (got == -1 && errno == EINTR);
    line[got > 0 ? got - 1 : 0] = 0;
    say("got <%s>", line);
    while (!resizes)
        usleep(1000);
    struct winsize size;
    ioctl(0, TIOCGWINSZ, &size);
    say("size %dx%d", size.ws_col, size.ws_row);
    /* A child in a background group must not read. */
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        (void)!read(0, line, 1);
        _exit(3);
    }
    setpgid(pid, pid);
    int status;
    MUST(waitpid(pid, &status, WUNTRACED) == pid);
    say("background read: %s", WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN ? "SIGTTIN" : "?");
    /* Brought to the foreground it goes on. */
    signal(SIGTTOU, SIG_IGN);
    MUST(tcsetpgrp(0, pid) == 0);
    kill(-pid, SIGCONT);
    say("type");
    pid_t ended;
    while ((ended = waitpid(pid, &status, 0)) == -1 && errno == EINTR)
        ;
    MUST(ended == pid && tcsetpgrp(0, getpgrp()) == 0);
    say("foreground child: %d", WEXITSTATUS(status));
    /* A job that is stopped from the keyboard, continued, and ended. */
    pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        signal(SIGINT, SIG_DFL);
        tcsetpgrp(0, getpid());
        write(1, "job\n", 4);
        for (volatile unsigned long i = 0;; i++)
            ;
    }
    for (int i = 0; i < 3; i++) {
        MUST(waitpid(pid, &status, WUNTRACED) == pid);
        MUST(tcsetpgrp(0, getpgrp()) == 0);
        if (!WIFSTOPPED(status))
            break;
        say("stopped by %d", WSTOPSIG(status));
        tcsetpgrp(0, pid);
        kill(-pid, SIGCONT);
        say("continued");
    }
    say("ended by %d", WTERMSIG(status));
    say("failures %d", check_failures);
    for (;;)
        pause(); /* until hang-up */
}

int main(void)
{
    pid_t pid = forkpty(&master, NULL, NULL, NULL);
    MUST(pid >= 0);
    if (pid == 0) {
        in_terminal();
        _exit(0);
    }
    expect("ready");
    /* What is typed before the read begins does not interrupt it. */
    double end = patience();
    do
        type("\003");
    while (!appears("interrupted by a handler", now_seconds() + 0.2) && now_seconds() < end);
    CHECK(now_seconds() < end, "interrupted");
    type("hello\n");
    expect("got <hello>");
    struct winsize size = {.ws_row = 33, .ws_col = 77};
    MUST(ioctl(master, TIOCSWINSZ, &size) == 0);
    expect("size 77x33");
    expect("background read: SIGTTIN");
    expect("type");
    type("\n");
    expect("foreground child: 3");
    expect("job");
    type("\032");
    expect("stopped by 20");
    expect("continued");
    usleep(20000);
    type("\032");
    expect("stopped by 20");
    expect("continued");
    usleep(20000);
    type("\034");
    expect("ended by 3");
    expect("failures 0");
    close(master);
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, SIGHUP, "the session ends by hang-up");
    return done();
}

/* Promise: F9 */
