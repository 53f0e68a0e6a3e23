//@ variants: pie static
//@ cflags: -O1 -pthread
/* How a process with threads ends: exit_group from any thread while others compute, sleep, or are being
 * created; the first thread gone before the others; exec from another thread; fatal signals. */
#include "check.h"
#include <sys/prctl.h>

static void *spin(void *argument)
{
    for (volatile unsigned long i = 0;; i++)
        ;
    return argument;
}
static void *sleeper(void *argument)
{
    for (;;)
        pause();
    return argument;
}
static void *spawner(void *argument)
{
    for (;;) {
        pthread_t id;
        if (pthread_create(&id, NULL, argument ? spawner : sleeper, NULL) == 0)
            pthread_detach(id);
        usleep(100);
    }
    return NULL;
}
static void *call_exit(void *argument)
{
    usleep(5000);
    _exit((int)(uintptr_t)argument);
}

static void crowd(void)
{
    pthread_t id;
    for (int i = 0; i < 3; i++)
        pthread_create(&id, NULL, spin, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&id, NULL, sleeper, NULL);
}

static void exit_by_main(void)
{
    crowd();
    usleep(3000);
    _exit(11);
}
static void exit_by_other(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, call_exit, (void *)12);
    spin(NULL);
}
static void exit_while_creating(void)
{
    pthread_t id;
    pthread_create(&id, NULL, spawner, NULL);
    pthread_create(&id, NULL, call_exit, (void *)13);
    pthread_join(id, NULL);
}
static void *exit_later(void *argument)
{
    char path[64], text[400] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    /* Soon the first thread is gone. */
    for (int i = 0; i < 500 && strstr(text, ") Z ") == NULL; i++) {
        usleep(20000);
        int fd = open(path, O_RDONLY);
        memset(text, 0, sizeof text);
        MUST(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
        close(fd);
    }
    CHECK(strstr(text, ") Z ") != NULL, "the first thread is a zombie: %s", text);
    pthread_t id;
    MUST(pthread_create(&id, NULL, call_exit, argument) == 0);
    pthread_join(id, NULL);
    return NULL;
}
static void leader_first(void)
{
    pthread_t id;
    pthread_create(&id, NULL, exit_later, (void *)14);
    pthread_exit(NULL);
}
static void *last_one(void *argument)
{
    usleep(20000);
    say("last thread");
    return argument;
}
static void last_thread_ends(void)
{
    pthread_t id;
    pthread_create(&id, NULL, last_one, NULL);
    pthread_exit(NULL);
}
static void *raw_exit(void *argument)
{
    syscall(SYS_exit, 5);
    return argument;
}
static void raw_thread_exits(void)
{
    pthread_t id;
    for (int i = 0; i < 20; i++)
        pthread_create(&id, NULL, raw_exit, NULL);
    usleep(20000);
    syscall(SYS_exit_group, 15);
}
static void *fault(void *argument)
{
    usleep(2000);
    *(volatile int *)8 = 1;
    return argument;
}
static void fatal_in_thread(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, fault, NULL);
    pthread_join(id, NULL);
}
static void *abort_thread(void *argument)
{
    abort();
    return argument;
}
static void abort_in_thread(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, abort_thread, NULL);
    pthread_join(id, NULL);
}

static void *exec_sh(void *argument)
{
    usleep(3000);
    execl("/bin/sh", "sh", "-c", "exit 17", NULL);
    return argument;
}
static void exec_by_other(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, exec_sh, NULL);
    pthread_join(id, NULL);
}
static void exec_after_leader(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, exec_sh, NULL);
    pthread_exit(NULL);
}
static void exec_by_main(void)
{
    crowd();
    exec_sh(NULL);
}
static void *exec_pid(void *argument)
{
    char command[64];
    snprintf(command, sizeof command, "test $$ = %d", (int)getpid());
    execl("/bin/sh", "sh", "-c", command, NULL);
    return argument;
}
static void exec_keeps_pid(void)
{
    pthread_t id;
    crowd();
    pthread_create(&id, NULL, exec_pid, NULL);
    pthread_join(id, NULL);
}
static void *two_execs(void *argument)
{
    execl("/bin/sh", "sh", "-c", "exit 18", NULL);
    return argument;
}
static void racing_execs(void)
{
    pthread_t id;
    for (int i = 0; i < 4; i++)
        pthread_create(&id, NULL, two_execs, NULL);
    pthread_join(id, NULL);
    for (;;)
        pause();
}

int main(void)
{
    static const struct { const char *name; void (*run)(void); int status; } cases[] = {
        {"exit by the first thread", exit_by_main, 11 << 8},
        {"exit by another thread", exit_by_other, 12 << 8},
        {"exit while threads are made", exit_while_creating, 13 << 8},
        {"the first thread ends first", leader_first, 14 << 8},
        {"the last thread ends", last_thread_ends, 0},
        {"raw exits", raw_thread_exits, 15 << 8},
        {"fault in a thread", fatal_in_thread, SIGSEGV},
        {"abort in a thread", abort_in_thread, SIGABRT},
        {"exec by another thread", exec_by_other, 17 << 8},
        {"exec after the first thread ended", exec_after_leader, 17 << 8},
        {"exec by the first thread", exec_by_main, 17 << 8},
        {"exec keeps the pid", exec_keeps_pid, 0},
        {"racing execs", racing_execs, 18 << 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        say("%s", cases[i].name);
        for (int round = 0; round < 8; round++) {
            int status = in_child(cases[i].run);
            CHECK_EQ(status & ~0x80, cases[i].status, "%s, round %d", cases[i].name, round);
        }
    }
    return done();
}

/* Promise: F9 */
