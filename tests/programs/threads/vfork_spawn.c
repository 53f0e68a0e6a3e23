//@ variants: pie static
//@ cflags: -O1 -pthread
/* vfork, posix_spawn, system, popen: children that borrow the parent's memory, also with threads running
 * and a timer firing. */
#include "check.h"
#include <spawn.h>

extern char **environ;

static void after_vfork(void)
{
    for (int i = 0; i < 100; i++) {
        volatile int touched = 0;
        pid_t pid = vfork();
        MUST(pid >= 0);
        if (pid == 0) {
            touched = i + 1;
            _exit(i);
        }
        CHECK_EQ(touched, i + 1, "the child's store is seen");
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, i << 8, "status");
    }
}

static void exec_after_vfork(void)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = vfork();
        MUST(pid >= 0);
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "exit 7", NULL);
            _exit(99);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 7 << 8, "status of sh");
    }
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/nonexistent/program", "x", NULL);
        _exit(errno == ENOENT ? 5 : 6);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 5 << 8, "exec fails, the child goes on");
}

static void spawned(void)
{
    for (int i = 0; i < 30; i++) {
        char command[64];
        snprintf(command, sizeof command, "exit %d", i);
        char *const argv[] = {"sh", "-c", command, NULL};
        pid_t pid;
        posix_spawnattr_t attributes;
        posix_spawn_file_actions_t actions;
        posix_spawnattr_init(&attributes);
        sigset_t set;
        sigfillset(&set);
        posix_spawnattr_setsigdefault(&attributes, &set);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        MUST(posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv, environ) == 0);
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, i << 8, "status");
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    char *const argv[] = {"none", NULL};
    pid_t pid;
    CHECK_EQ(posix_spawn(&pid, "/nonexistent/none", NULL, NULL, argv, environ), ENOENT, "a program that is not there");
}

static void by_shell(void)
{
    CHECK_EQ(system("exit 3"), 3 << 8, "system");
    CHECK_EQ(system("kill -TERM $$") & 0x7f, SIGTERM, "system, killed");
    FILE *pipe = popen("echo from the child; cat /dev/null", "r");
    char line[100] = "";
    MUST(pipe && fgets(line, sizeof line, pipe));
    CHECK(strcmp(line, "from the child\n") == 0, "popen: %s", line);
    CHECK_EQ(pclose(pipe), 0, "pclose");
}

static atomic_int stop;
static void *spin(void *argument)
{
    atomic_long *counter = argument;
    do
        atomic_fetch_add(counter, 1);
    while (!atomic_load(&stop));
    return NULL;
}

static volatile int ticks;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

static void with_threads_and_timer(void)
{
    static atomic_long counters[3];
    pthread_t ids[3];
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&ids[i], NULL, spin, &counters[i]) == 0);
    on_signal(SIGALRM, tick, SA_RESTART);
    struct itimerval timer = {{0, 2000}, {0, 2000}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    spawned();
    after_vfork();
    setitimer(ITIMER_REAL, &off, NULL);
    stop = 1;
    for (int i = 0; i < 3; i++) {
        pthread_join(ids[i], NULL);
        CHECK(counters[i] > 0, "thread %d ran", i);
    }
}

int main(void)
{
    RUN(after_vfork);
    RUN(exec_after_vfork);
    RUN(spawned);
    RUN(by_shell);
    RUN(with_threads_and_timer);
    return done();
}

/* Promise: F9 */
