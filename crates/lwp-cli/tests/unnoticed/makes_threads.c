/* Makes a thread after another until its standard input ends, each of which asks for its
   processor. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static void *brief(void *ran)
{
    if (sched_getcpu() >= 0)
        ++*(int *)ran;
    return 0;
}

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    int made = 0, ran = 0;
    puts("ready");
    fflush(stdout);
    for (; poll(&input, 1, 1) == 0; made++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, brief, &ran) != 0 || pthread_join(thread, 0) != 0)
            return 1;
    }
    puts(made == ran ? "all ran" : "some did not run");
    return 0;
}
