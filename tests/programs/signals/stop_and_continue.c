//@ cflags: -O1 -pthread
/* Stopping and continuing children: WUNTRACED and WCONTINUED statuses, a stop does not disturb the
 * computation, SIGTSTP can be handled, a stopped child can be killed. */
#include "check.h"

static int pipe_ends[2];

static void compute_for_ever(void)
{
    volatile unsigned long counter = 0;
    for (;;) {
        counter++;
        if (counter % 1000000 == 0 && write(pipe_ends[1], "x", 1) != 1)
            _exit(96);
    }
}

static void wait_for(pid_t pid, int options, int want, const char *what)
{
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, options), pid, "%s: waitpid", what);
    CHECK_EQ(status, want, "%s: status", what);
}

static void stop_loop(void)
{
    MUST(pipe(pipe_ends) == 0);
    fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        compute_for_ever();
    for (int i = 0; i < 20; i++) {
        kill(pid, SIGSTOP);
        wait_for(pid, WUNTRACED, SIGSTOP << 8 | 0x7f, "stop");
        char drain[4096];
        while (read(pipe_ends[0], drain, sizeof drain) > 0)
            ;
        usleep(2000);
        CHECK(read(pipe_ends[0], drain, 1) == -1 && errno == EAGAIN, "a stopped child makes no progress");
        kill(pid, SIGCONT);
        wait_for(pid, WCONTINUED, 0xffff, "continue");
    }
    kill(pid, SIGSTOP);
    wait_for(pid, WUNTRACED, SIGSTOP << 8 | 0x7f, "stop");
    kill(pid, SIGKILL);
    wait_for(pid, 0, SIGKILL, "kill while stopped");
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void self_stop_child(void)
{
    for (int i = 0; i < 5; i++) {
        raise(SIGSTOP);
        say("child continued %d", i);
    }
}

static void self_stop(void)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        self_stop_child();
        _exit(3);
    }
    for (int i = 0; i < 5; i++) {
        wait_for(pid, WUNTRACED, SIGSTOP << 8 | 0x7f, "raise");
        kill(pid, SIGCONT);
    }
    wait_for(pid, 0, 3 << 8, "exit");
}

static volatile int continued, stops;
static void on_cont(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    continued++;
}
static void on_tstp(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    stops++;
    raise(SIGSTOP);
}

static void handled(void)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        on_signal(SIGCONT, on_cont, 0);
        on_signal(SIGTSTP, on_tstp, 0);
        raise(SIGTSTP);
        CHECK_EQ(stops, 1, "SIGTSTP handler");
        CHECK_EQ(continued, 1, "SIGCONT handler");
        _exit(check_failures ? 1 : 0);
    }
    wait_for(pid, WUNTRACED, SIGSTOP << 8 | 0x7f, "stop in a handler");
    kill(pid, SIGCONT);
    wait_for(pid, 0, 0, "exit");
}

static void *worker(void *argument)
{
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < 100000000; i++)
        sum += i;
    *(unsigned long *)argument = sum;
    return NULL;
}

static void threaded(void)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        pthread_t ids[3];
        unsigned long sums[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&ids[i], NULL, worker, &sums[i]);
        for (int i = 0; i < 3; i++)
            pthread_join(ids[i], NULL);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(sums[i], 99999999ul * 50000000, "sum of thread %d", i);
        _exit(check_failures ? 1 : 0);
    }
    int status = 0, stopped = 0;
    for (int i = 0; i < 10; i++) {
        usleep(3000);
        kill(pid, SIGSTOP);
        if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
            break;
        stopped++;
        kill(pid, SIGCONT);
    }
    if (WIFSTOPPED(status))
        MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "threaded child");
    CHECK(stopped > 3, "stopped %d times", stopped);
}

static void during_sleep(void)
{
    /* A stop in nanosleep: the kernel restarts the call with the time that is left. */
    int ends[2];
    MUST(pipe(ends) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        MUST(write(ends[1], "x", 1) == 1);
        double begin = now_seconds();
        struct timespec time = {1, 0};
        int result = nanosleep(&time, NULL);
        double took = now_seconds() - begin;
        CHECK_EQ(result, 0, "nanosleep across a stop");
        CHECK(took >= 0.999 && took < 20, "slept %.3f s", took);
        _exit(check_failures ? 1 : 0);
    }
    char byte;
    MUST(read(ends[0], &byte, 1) == 1);
    usleep(50000);
    kill(pid, SIGSTOP);
    wait_for(pid, WUNTRACED, SIGSTOP << 8 | 0x7f, "stop in nanosleep");
    usleep(50000);
    kill(pid, SIGCONT);
    wait_for(pid, 0, 0, "exit");
    close(ends[0]), close(ends[1]);
}

int main(void)
{
    RUN(stop_loop);
    RUN(self_stop);
    RUN(handled);
    RUN(threaded);
    RUN(during_sleep);
    return done();
}

/* Promise: F8 */
