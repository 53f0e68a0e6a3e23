/* Takes queued signals, which another process sends as fast as it can until standard input ends, and
   says whether as many have come. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long taken;

static void take(int signal)
{
    (void)signal;
    taken++;
}

static void send(pid_t to, int result)
{
    struct pollfd input = {0, POLLIN, 0};
    long sent = 0;
    while (poll(&input, 1, 0) == 0) {
        union sigval value = {0};
        sent += sigqueue(to, SIGRTMIN, value) == 0;
        for (volatile int pause = 0; pause < 20000; pause++)
            ;
    }
    if (write(result, &sent, sizeof sent) != sizeof sent)
        _exit(1);
    _exit(0);
}

int main(void)
{
    struct sigaction action = {.sa_handler = take, .sa_flags = SA_RESTART};
    struct pollfd result;
    int ends[2];
    long sent = 0;
    pid_t me = getpid();
    if (sigaction(SIGRTMIN, &action, 0) != 0 || pipe(ends) != 0)
        return 1;
    if (fork() == 0)
        send(me, ends[1]);
    puts("ready");
    fflush(stdout);
    result = (struct pollfd){ends[0], POLLIN, 0};
    for (volatile long work = 0; poll(&result, 1, 0) != 1;)
        for (int i = 0; i < 100000; i++)
            work++;
    if (read(ends[0], &sent, sizeof sent) != sizeof sent)
        return 1;
    wait(0);
    puts(taken == sent ? "all came" : "some were lost");
    return 0;
}
