/* One thread waits for events while another makes children, of whose ends nobody wants signals. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

static void *make_children(void *unused)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            usleep(20000);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    return unused;
}

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    struct epoll_event event;
    int polled = epoll_create1(0);
    pthread_t thread;
    puts("ready");
    fflush(stdout);
    pthread_create(&thread, 0, make_children, 0);
    while (poll(&input, 1, 0) == 0)
        if (epoll_wait(polled, &event, 1, 100) != 0) {
            puts(errno == EINTR ? "interrupted" : "failed");
            return 0;
        }
    puts("never interrupted");
    return 0;
}
