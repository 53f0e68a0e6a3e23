//@ signal: 15
//@ cflags: -pthread
/* A signal for the whole process ends it while threads run and the first one waits. */
#include "check.h"

static void *spin(void *argument)
{
    for (volatile unsigned long i = 0;; i++)
        ;
    return argument;
}

static void *killer(void *argument)
{
    usleep(50000);
    say("now");
    kill(getpid(), SIGTERM);
    for (;;)
        pause();
    return argument;
}

int main(void)
{
    pthread_t id;
    pthread_create(&id, NULL, spin, NULL);
    pthread_create(&id, NULL, killer, NULL);
    pthread_join(id, NULL);
    return 0;
}

/* Promise: F8 */
