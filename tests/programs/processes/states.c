//@ cflags: -O1
/* The state of a child in /proc: running, asleep, stopped by job control, gone on, and dead. */
#include "check.h"

static char state_of(pid_t pid, const char *name)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    MUST(bytes > 0);
    text[bytes] = 0;
    close(fd);
    char *status = strstr(text, "State:\t");
    return status ? status[7] : strrchr(text, ')')[2];
}

/* Waits until the state is there that is to come. */
static void comes(pid_t pid, char state, const char *when)
{
    double end = patience();
    while (state_of(pid, "stat") != state && now_seconds() < end)
        usleep(500);
    char one = state_of(pid, "stat"), other = state_of(pid, "status");
    say("%s: %c %c", when, one, other);
}

static void *spin(void *up)
{
    for (;;)
        *(volatile long *)up += 1;
    return NULL;
}

static void of_a_child(bool sleeps)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        static long up;
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, spin, &up) == 0);
        if (!sleeps)
            spin(&up);
        for (;;)
            pause();
    }
    comes(pid, sleeps ? 'S' : 'R', "at first");
    kill(pid, SIGSTOP);
    MUST(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    comes(pid, 'T', "stopped");
    kill(pid, SIGUSR1);
    comes(pid, 'T', "with a signal that waits");
    kill(pid, SIGCONT);
    kill(pid, SIGKILL);
    comes(pid, 'Z', "dead");
    MUST(waitpid(pid, &status, 0) == pid);
    say("%d", WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGUSR1);
}

int main(void)
{
    of_a_child(false);
    of_a_child(true);
    return done();
}

/* Promise: F9, F22 */
