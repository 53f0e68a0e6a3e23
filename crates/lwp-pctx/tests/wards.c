/*
 * Requests to the host of the virtual CPU that no library would make. Prints "done" and exits with 0 if all is well.
 * With an argument, tries to capture that process.
 */
#define _GNU_SOURCE
#include <libpctx.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROBE = 0x6c777000, TAKE, GO, STOP, NEXT, GIVE, DROP, GUARDIAN };
enum { CREATED = 1, STAND = 2 };

#define CHECK(it)                                                                                 \
    do {                                                                                          \
        if (!(it)) {                                                                              \
            printf("line %d: %s: errno %d\n", __LINE__, #it, errno);                              \
            exit(2);                                                                              \
        }                                                                                         \
    } while (0)
#define FAILS(call, number) CHECK((errno = 0, (call) == -1 && errno == (number)))

static long ask(long request, long pid, const void *address, long data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

/* A child that sleeps, after it has become another user if it is told to. */
static pid_t child(int other_user)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (other_user && (setgroups(0, 0) != 0 || setresgid(65534, 65534, 65534) != 0
                           || setresuid(65534, 65534, 65534) != 0))
            _exit(9);
        write(ready[1], "", 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]), close(ready[1]);
    return pid;
}

static void end(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* The next event of `pid`, waited for; its kind. */
static long event(pid_t pid)
{
    for (int i = 0; i < 120000; i++) {
        uint64_t words[4];
        long had = ask(NEXT, pid, words, 0);
        if (had != 0)
            return had == 1 ? (long)words[0] : -1;
        usleep(500);
    }
    return -2;
}

static void errfn(const char *fn, const char *fmt, va_list ap)
{
    printf("%s: ", fn);
    vprintf(fmt, ap);
}

static void requests(const void *bell)
{
    pid_t pid = child(0);
    uint64_t words[4];
    FAILS(ask(TAKE, getpid(), bell, 0), ESRCH);
    FAILS(ask(TAKE, 1 << 30, bell, 0), ESRCH);
    FAILS(ask(NEXT, pid, words, 0), ESRCH);
    FAILS(ask(GO, pid, NULL, 0), ESRCH);
    FAILS(ask(STOP, pid, NULL, 0), ESRCH);
    FAILS(ask(GIVE, pid, NULL, 0), ESRCH);
    FAILS(ask(DROP, pid, NULL, 0), ESRCH);
    FAILS(ask(GUARDIAN + 1, pid, NULL, 0), EPERM);
    CHECK(ask(GUARDIAN, pid, NULL, 0) == 0);
    CHECK(ask(TAKE, pid, bell, STAND) == 0);
    FAILS(ask(TAKE, pid, bell, 0), EBUSY);
    FAILS(ask(GIVE, pid, (void *)(1L << 30), 0), ESRCH);
    CHECK(ask(GUARDIAN, pid, NULL, 0) == getpid());
    long had = 0;
    for (int i = 0; i < 120000 && had == 0; i++) {
        usleep(500);
        had = ask(NEXT, pid, (void *)8, 0);
    }
    CHECK(had == -1 && errno == EFAULT);
    CHECK(event(pid) == 7);
    CHECK(ask(NEXT, pid, words, 0) == 0);
    CHECK(ask(GO, pid, NULL, 0) == 0 && ask(GO, pid, NULL, 0) == 0);
    CHECK(ask(DROP, pid, NULL, 0) == 0);
    FAILS(ask(NEXT, pid, words, 0), ESRCH);
    end(pid);
}

/* A bell that is no eventfd is not written to. */
static void bells(void)
{
    int file = memfd_create("bell", 0);
    CHECK(file >= 0);
    pid_t pid = child(0);
    CHECK(ask(TAKE, pid, (void *)(long)file, STAND) == 0);
    CHECK(event(pid) == 6 && event(pid) == 7);
    CHECK(lseek(file, 0, SEEK_END) == 0);
    CHECK(ask(DROP, pid, NULL, 0) == 0);
    end(pid);
}

/* Another user's process is not to be had. */
static void users(const void *bell)
{
    if (geteuid() != 0)
        return;
    pid_t pid = child(0);
    pid_t thief = fork();
    if (thief == 0) {
        CHECK(setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0);
        CHECK(setresuid(65534, 65534, 65534) == 0);
        FAILS(ask(TAKE, pid, bell, STAND), EPERM);
        _exit(0);
    }
    int status;
    CHECK(waitpid(thief, &status, 0) == thief && status == 0);
    end(pid);
    pid = child(1);
    CHECK(ask(TAKE, pid, bell, STAND) == 0); /* root may */
    CHECK(event(pid) == 6);
    CHECK(ask(DROP, pid, NULL, 0) == 0);
    end(pid);
}

/* The wards of a process that dies go on, or die with it. */
static void deaths(const void *bell)
{
    for (int created = 0; created < 2; created++) {
        pid_t pid = child(0);
        pid_t guardian = fork();
        if (guardian == 0) {
            CHECK(ask(TAKE, pid, bell, STAND | (created ? CREATED : 0)) == 0);
            CHECK(event(pid) == 6 && event(pid) == 7);
            raise(SIGKILL);
        }
        CHECK(waitpid(guardian, NULL, 0) == guardian);
        if (!created)
            kill(pid, SIGTERM); /* ends it if it goes on */
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WTERMSIG(status) == (created ? SIGKILL : SIGTERM));
    }
}

/* A ward that is killed while it stands still. */
static void killed(const void *bell)
{
    pid_t pid = child(0);
    CHECK(ask(TAKE, pid, bell, STAND) == 0 && event(pid) == 6 && event(pid) == 7);
    CHECK(kill(pid, SIGKILL) == 0);
    long what = event(pid);
    if (what == 4) {
        CHECK(ask(GO, pid, NULL, 0) == 0);
        what = event(pid);
    }
    CHECK(what == 5);
    CHECK(waitpid(pid, NULL, 0) == pid);
    uint64_t words[4];
    FAILS(ask(NEXT, pid, words, 0), ESRCH);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        pctx_t *pctx = pctx_capture(atoi(argv[1]), NULL, 0, errfn);
        return pctx == NULL && errno == EPERM ? 1 : 0;
    }
    CHECK(ask(PROBE, 0, NULL, 0) == 0);
    void *bell = (void *)(long)eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    requests(bell);
    bells();
    users(bell);
    deaths(bell);
    killed(bell);
    printf("done\n");
    return 0;
}
