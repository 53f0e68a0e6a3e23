/* Hides its memory from others of its user, and makes a thread and children: each says whether it is hidden. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int dumpable(void)
{
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
}

static int set_dumpable(unsigned long value)
{
    return prctl(PR_SET_DUMPABLE, value, 0, 0, 0);
}

static void *thread(void *nothing)
{
    printf("thread: %d\n", dumpable());
    return nothing;
}

static void child(int number, char **argv)
{
    printf("child: %d\n", dumpable());
    if (number == 1)
        abort();
    if (number == 2)
        execl(argv[0], argv[0], "again", (char *)0);
    _exit(5);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    printf("first: %d\n", dumpable());
    if (argc > 1)
        return 7;
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
    printf("hide: %d\n", set_dumpable(0));
    printf("hidden: %d\n", dumpable());
    pthread_t made;
    pthread_create(&made, 0, thread, 0);
    pthread_join(made, 0);
    free(malloc(1 << 22));
    for (int i = 0; i < 3; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            child(i, argv);
        waitpid(pid, &status, 0);
        printf("ended: %x\n", status);
    }
    printf("invalid: %d\n", set_dumpable(2));
    printf("show: %d\n", set_dumpable(1));
    printf("shown: %d\n", dumpable());
    return 6;
}
